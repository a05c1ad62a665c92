// Shared by the config tests: configs in few words, the text of their mistakes, and sample values for a key.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "config/table.h"
#include "shoal/config.h"
#include "shoal/error.h"

namespace shoal::json {

inline void PrintTo(const Value& value, std::ostream* out) { *out << write(value); }

}  // namespace shoal::json

namespace shoal::config {

inline constexpr const char* kBatch = R"("train_micro_batch_size_per_gpu": 1)";

// A config of the given members and a batch, on line 1.
inline std::string with_batch(std::string_view members) {
  return "{" + std::string(kBatch) + ", " + std::string(members) + "}";
}

inline Config parse_members(std::string_view members, const ConfigContext& context = {}) {
  return Config::from_text(with_batch(members), context);
}

// Every type of optimizer, as messages list them.
inline std::string optimizer_names() {
  std::string names;
  for (const OptimizerRow& row : kOptimizers) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// What a config is refused with, or "" when it is accepted.
inline std::string mistakes_of_text(std::string_view text, const ConfigContext& context = {},
                                    const std::vector<std::string>& overrides = {}) {
  try {
    Config::from_text(text, context, "config", overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The same for members beside a batch, without the heading when there is one mistake.
inline std::string mistakes_of(std::string_view members, const ConfigContext& context = {}) {
  const std::string all = mistakes_of_text(with_batch(members), context);
  constexpr std::string_view kHeading = "[config] 1 mistake:\n  ";
  return all.starts_with(kHeading) ? all.substr(kHeading.size()) : all;
}

// A valid value that is not the default, for the given type of optimizer or scheduler.
inline Value another_value(const Key& key, const std::string& type = "") {
  const Value* fallback = key.fallback_of(type);
  const Value was = fallback == nullptr ? Value() : *fallback;
  switch (key.type) {
    case Type::boolean: return !was.is_boolean() || !was.as_boolean();
    case Type::integer:
      if (key.least > 3) return static_cast<int64_t>(key.least);
      return was == Value(3) || key.most < 3 ? Value(2) : Value(3);
    case Type::number: return was == Value(0.5) || key.most < 0.5 ? Value(0.25) : Value(0.5);
    case Type::text: return key.choices.empty() ? Value("somewhere") : Value(key.choices.back());
    case Type::pair: return json::Array{Value(0.5), Value(0.75)};
    case Type::nbytes: return key.least > 3 ? Value(static_cast<int64_t>(key.least)) : Value(3);
    case Type::texts: return json::Array{Value("one")};
    case Type::anything: return json::Object{{"x", Value(1), {}}};
  }
  return {};
}

// A config with this key set, and what the key needs beside it.
inline std::string text_with(const Section& section, const std::string& spelling, const Value& value,
                             const std::string& type = "") {
  std::vector<std::string> names;
  for (std::string_view rest = section.path; !rest.empty();) {
    names.emplace_back(rest.substr(0, rest.find('.')));
    rest.remove_prefix(std::min(rest.size(), names.back().size() + 1));
  }
  Value root{json::Object{}};
  if (!spelling.starts_with("train_")) root.set("train_micro_batch_size_per_gpu", 2);
  Value* home = &root;
  for (size_t i = 0; i < names.size(); ++i) {
    home = &home->set(names[i], json::Object{});
    if (i == 0 && !type.empty()) home->set("type", type);
  }
  // Parameters that a schedule cannot do without.
  const std::string kind = spelling == "type" && value.is_text() ? value.as_text() : type;
  if (kind == "WarmupDecayLR" || kind == "WarmupCosineLR" || kind == "WarmupStableDecayLR" ||
      kind == "WarmupCosineRestartsLR") {
    Value& params = spelling == "type" ? home->set("params", json::Object{}) : *home;
    params.set("total_num_steps", 5000);
  }
  if (type == "OneCycle") home->set("cycle_min_lr", 0.125), home->set("cycle_max_lr", 0.625);
  if (spelling == "total_num_steps") home->set("warmup_num_steps", 1);
  if (type == "OneCycle" && spelling.starts_with("decay_")) home->set("decay_step_size", 4);
  if (spelling == "nesterov") home->set("momentum", 0.5);
  if (section.path.starts_with("zero_optimization.offload_") && spelling == "device") home->set("nvme_path", "/local");
  home->set(spelling, value);
  if (section.path == "zero_optimization.offload_param") root.find("zero_optimization")->set("stage", 3);
  return json::write(root);
}

}  // namespace shoal::config
