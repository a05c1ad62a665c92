// See hf_config.h.
#include "models/hf_config.h"

#include <fmt/format.h>

#include "shoal/error.h"

namespace shoal::models {

HfConfig::HfConfig(json::Value root, std::string origin) : root_(std::move(root)), origin_(std::move(origin)) {
  if (!root_.is_object()) throw Error(origin_, "is not a JSON object. A model's config.json is one.");
}

const json::Value* HfConfig::find(std::string_view key) const {
  const json::Value* value = root_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void HfConfig::wrong(std::string_view key, std::string_view what) const {
  const json::Value* value = find(key);
  throw Error(fmt::format("{} {}{}", origin_, path_, key),
              value == nullptr ? fmt::format("is not there. Give it: {}.", what)
                               : fmt::format("{} is not {}.", json::write(*value), what));
}

void HfConfig::refuse(std::string_view key, std::string_view instead) const {
  const json::Value* value = find(key);
  throw Error(fmt::format("{} {}{}", origin_, path_, key),
              fmt::format("{} is not supported. {}", value == nullptr ? "null" : json::write(*value), instead));
}

int64_t HfConfig::count(std::string_view key, std::optional<int64_t> otherwise) const {
  const json::Value* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_integer() || value->as_integer() < 1 || value->as_integer() > (int64_t{1} << 40)) {
    wrong(key, "a count of 1 or more");
  }
  return value->as_integer();
}

int64_t HfConfig::whole(std::string_view key, int64_t otherwise) const {
  const json::Value* value = find(key);
  return value != nullptr && *value == json::Value(0) ? 0 : count(key, otherwise);
}

int64_t HfConfig::layers(std::string_view key, std::optional<int64_t> otherwise) const {
  const int64_t layers = count(key, otherwise);
  if (layers > kMostLayers) wrong(key, fmt::format("a count of layers, at most {}", kMostLayers));
  return layers;
}

double HfConfig::number(std::string_view key, std::optional<double> otherwise) const {
  const json::Value* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number()) wrong(key, "a number");
  return value->as_number();
}

double HfConfig::probability(std::string_view key) const {
  const double value = number(key, 0.0);
  if (!(value >= 0 && value < 1)) wrong(key, "a probability from 0 to below 1");
  return value;
}

bool HfConfig::flag(std::string_view key, bool otherwise) const {
  const json::Value* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->as_boolean();
}

std::string HfConfig::text(std::string_view key, std::string_view otherwise) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_text()) wrong(key, "a text");
  return value->as_text();
}

HfConfig HfConfig::section(std::string_view key) const {
  const json::Value* value = find(key);
  if (value != nullptr && !value->is_object()) wrong(key, "an object");
  HfConfig section(value == nullptr ? json::Value(json::Object{}) : *value, origin_);
  section.path_ = fmt::format("{}{}.", path_, key);
  return section;
}

json::Value export_hf_config(const json::Value& root, const std::string& architecture) {
  json::Value exported = root;
  for (const char* key : {"dtype", "torch_dtype", "_name_or_path", "transformers_version"}) exported.erase(key);
  exported.set("architectures", json::Array{architecture});
  return exported;
}

}  // namespace shoal::models
