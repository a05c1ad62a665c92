// See include/shoal/config.h. Runs the steps in order: parse, overrides, read by the table, older forms,
// batch, rules, fill.
#include "shoal/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/regular_file.h"
#include "config/batch.h"
#include "config/forms.h"
#include "config/overrides.h"
#include "config/reader.h"
#include "shoal/error.h"

namespace shoal {
namespace {

using namespace config;

constexpr const char* kReproducibleVariable = "SHOAL_REPRODUCIBLE";

// SHOAL_REPRODUCIBLE=1 switches `shoal.reproducible` on whatever the file says; it never switches it off.
void read_environment(Config& config) {
  const char* text = std::getenv(kReproducibleVariable);
  if (text == nullptr || std::string_view(text).empty() || std::string_view(text) == "0") return;
  if (std::string_view(text) != "1") {
    throw Error(fmt::format("environment {}", kReproducibleVariable),
                fmt::format("\"{}\" is not 0 or 1. Set one.", text));
  }
  config.shoal.reproducible = true;
}

Config fill_config(const Settings& settings) {
  Config config;
  for (const Section& section : table().sections()) {
    for (const Key& key : section.keys) {
      if (key.binding.store && settings.applies(section, key)) key.binding.store(config, settings.value(key.path));
    }
  }
  return config;
}

}  // namespace

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::disk: return "disk";
  }
  return "?";
}

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
  }
  return "?";
}

Config Config::from_text(std::string_view text, const ConfigContext& context, std::string_view origin,
                         const std::vector<std::string>& overrides) {
  if (context.world_size < 1) {
    throw Error("config world_size", fmt::format("{} is no number of ranks. Give at least 1.", context.world_size));
  }
  if (const int ranks = context.data_ranks.value_or(1); ranks < 1 || context.world_size % ranks != 0) {
    throw Error("config data_ranks",
                fmt::format("{} cannot be the ranks that take samples of their own among {}. Give a "
                            "number that divides it.",
                            ranks, context.world_size));
  }
  Problems problems(overrides);
  std::vector<json::Duplicate> duplicates;
  Value root = json::parse(text, origin, &duplicates, json::Syntax::hjson);
  if (!root.is_object()) throw Error(origin, "the text is not a JSON object. It begins with { and ends with }.");
  for (const json::Duplicate& duplicate : duplicates) {
    problems.add(duplicate.second, duplicate.path,
                 fmt::format("given twice, first on line {}. Remove one of them.", duplicate.first.line));
  }
  apply_overrides(table(), overrides, root, problems);
  Settings settings = read_settings(table(), root, problems);
  resolve_autos(table(), context, settings);
  std::vector<std::string> notices = settle_forms(settings, problems);
  derive_batch(settings, context, problems);
  check_rules(table(), settings, problems);
  problems.throw_if_any(origin);
  Config config = fill_config(settings);
  config.shoal.ranks_per_host = context.ranks_per_host;
  config.notices = collect_notices(table(), root, settings);
  config.notices.insert(config.notices.begin(), notices.begin(), notices.end());
  read_environment(config);
  return config;
}

Config Config::from_file(const std::string& path, const ConfigContext& context,
                         const std::vector<std::string>& overrides) {
  const std::string text = read_regular(path, "config " + path, "Give the path of a JSON file.");
  return from_text(text, context, "config " + path, overrides);
}

std::string Config::to_json() const {
  Value root{json::Object{}};
  for (const Section& section : table().sections()) {
    Value type;
    if (!section.type_key.empty()) type = table().key(section.type_key)->binding.load(*this);
    for (const Key& key : section.keys) {
      if (!key.binding.load) continue;
      if (!section.type_key.empty() && (type.is_null() || key.fallback_of(type.as_text()) == nullptr)) continue;
      Value* home = &root;
      std::string_view rest = section.path;
      while (!rest.empty()) {
        const std::string_view name = rest.substr(0, rest.find('.'));
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
        Value* next = home->find(name);
        home = next != nullptr ? next : &home->set(name, json::Object{});
      }
      home->set(key.name, key.binding.load(*this));
    }
  }
  return json::write(root, 2) + "\n";
}

}  // namespace shoal
