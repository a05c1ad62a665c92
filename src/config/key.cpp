// See key.h.
#include "config/key.h"

namespace shoal::config {

static Key make_key(std::string name, Type type, Value fallback) {
  Key key;
  key.name = std::move(name);
  key.type = type;
  key.nullable = fallback.is_null();
  key.fallback = std::move(fallback);
  return key;
}

Key boolean(std::string name, bool fallback) { return make_key(std::move(name), Type::boolean, fallback); }
Key integer(std::string name, Value fallback) { return make_key(std::move(name), Type::integer, std::move(fallback)); }
Key number(std::string name, Value fallback) { return make_key(std::move(name), Type::number, std::move(fallback)); }
Key text(std::string name, Value fallback) { return make_key(std::move(name), Type::text, std::move(fallback)); }
Key nbytes(std::string name, int64_t fallback) { return make_key(std::move(name), Type::nbytes, fallback).in("bytes"); }
Key anything(std::string name) { return make_key(std::move(name), Type::anything, Value()); }
Key list_of_texts(std::string name) { return make_key(std::move(name), Type::texts, json::Array{}); }

Key pair_of_numbers(std::string name, Value fallback) {
  return make_key(std::move(name), Type::pair, std::move(fallback));
}

Key& Key::dtype() {
  choices = {"fp32", "bf16", "fp16"};
  synonyms = {{"float32", "fp32"},        {"float", "fp32"},   {"torch.float32", "fp32"}, {"bfloat16", "bf16"},
              {"torch.bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},          {"torch.float16", "fp16"}};
  return *this;
}

const Value* Key::fallback_of(const std::string& type_name) const {
  if (fallback_by_type.empty()) return &fallback;
  for (const auto& [type, value] : fallback_by_type) {
    if (type == type_name) return &value;
  }
  return nullptr;
}

}  // namespace shoal::config
