// See lora.h.
#include "models/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal::models {

namespace {

constexpr const char* kLoraFlag = "--lora";
constexpr const char* kLoraExample = "as in r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05";
constexpr int64_t kMostRank = 1 << 16;

[[noreturn]] void refuse_lora(const std::string& what) { throw Error(kLoraFlag, what); }

// The whole text as a number.
template <typename Number>
std::optional<Number> number_in(const std::string& text) {
  Number number{};
  const auto [end, mistake] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || mistake != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int64_t rank_in(const std::string& text) {
  const std::optional<int64_t> rank = number_in<int64_t>(text);
  if (!rank || *rank < 1 || *rank > kMostRank) {
    refuse_lora(fmt::format("r={} is no rank of an adapter. Give a whole number from 1 to {}.", text, kMostRank));
  }
  return *rank;
}

double alpha_in(const std::string& text) {
  const std::optional<double> alpha = number_in<double>(text);
  if (!alpha || !std::isfinite(*alpha) || *alpha <= 0) {
    refuse_lora(fmt::format("alpha={} does not scale adapters. Give a number above 0.", text));
  }
  return *alpha;
}

double dropout_in(const std::string& text) {
  const std::optional<double> dropout = number_in<double>(text);
  if (!dropout || !(*dropout >= 0 && *dropout < 1)) {
    refuse_lora(fmt::format("dropout={} is no share. Give a number from 0 to below 1.", text));
  }
  return *dropout;
}

std::vector<std::string> targets_in(const std::string& text) {
  const std::vector<std::string> targets = split(text, '+');
  std::set<std::string> seen;
  for (const std::string& target : targets) {
    if (target.empty()) {
      refuse_lora(fmt::format("targets={} has an empty name. Join names of matrices with +: q_proj+v_proj.", text));
    }
    if (!seen.insert(target).second) {
      refuse_lora(fmt::format("targets={} names {} twice. Name each once.", text, target));
    }
  }
  if (targets.size() > 1 && seen.contains(kAllLinear)) {
    refuse_lora(fmt::format("targets={} names {} beside others, which it includes. Give it alone.", text, kAllLinear));
  }
  return targets;
}

// Whether PEFT takes the target for the module.
bool means(const std::string& target, const std::string& module) {
  return module == target || module.ends_with("." + target);
}

std::string last_word(const std::string& module) { return module.substr(module.rfind('.') + 1); }

void add_once(std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

}  // namespace

LoraSpec parse_lora(const std::string& text) {
  const std::vector<std::string> keys = {"r", "alpha", "targets", "dropout"};
  LoraSpec spec;
  std::set<std::string> given;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      const std::string near = nearest_word(key, keys);
      refuse_lora(
          fmt::format("\"{}\" is none of its keys.{} Give r and alpha, and if you like targets and dropout, {}.", key,
                      near.empty() ? "" : fmt::format(" Did you mean {}?", near), kLoraExample));
    }
    if (!given.insert(key).second) refuse_lora(fmt::format("gives {} twice. Give it once.", key));
    if (equals == std::string::npos) {
      refuse_lora(fmt::format("{} has no value. Write {}=, {}.", key, key, kLoraExample));
    }
    const std::string value = part.substr(equals + 1);
    if (key == "r") spec.rank = rank_in(value);
    if (key == "alpha") spec.alpha = alpha_in(value);
    if (key == "dropout") spec.dropout = dropout_in(value);
    if (key == "targets") spec.targets = targets_in(value);
  }
  for (const char* needed : {"r", "alpha"}) {
    if (!given.contains(needed)) refuse_lora(fmt::format("has no {}. Give r and alpha, {}.", needed, kLoraExample));
  }
  return spec;
}

std::string to_text(const LoraSpec& spec) {
  std::string text = fmt::format("r={},alpha={}", spec.rank, spec.alpha);
  std::vector<std::string> targets = spec.targets;
  std::sort(targets.begin(), targets.end());
  if (!targets.empty()) text += ",targets=" + join(targets, "+");
  if (spec.dropout > 0) text += fmt::format(",dropout={}", spec.dropout);
  return text;
}

bool LoraTargets::has(const std::string& module, bool makes_qv) {
  add_once(known_, last_word(module));
  bool meant = false;
  if (spec_.targets.empty()) {
    meant = makes_qv;
  } else if (spec_.targets.front() == kAllLinear) {
    meant = true;
  } else {
    for (const std::string& target : spec_.targets) {
      if (!means(target, module)) continue;
      meant = true;
      add_once(matching_, target);
    }
  }
  if (meant) add_once(chosen_, last_word(module));
  return meant;
}

void LoraTargets::refuse(const std::string& module) {
  add_once(refused_, last_word(module));
  if (!refused_module_.empty()) return;
  for (const std::string& target : spec_.targets) {
    if (target != kAllLinear && !means(target, module)) continue;
    refused_target_ = target;
    refused_module_ = module;
    return;
  }
}

LoraSpec LoraTargets::resolved(const std::string& name) const {
  if (known_.empty()) {
    refuse_lora(fmt::format("{} has no matrices that adapters are made for here. Leave it out.", name));
  }
  if (!refused_module_.empty()) {
    std::vector<std::string> others;
    for (const std::string& word : known_) {
      if (std::find(refused_.begin(), refused_.end(), word) == refused_.end()) others.push_back(word);
    }
    refuse_lora(fmt::format(
        "targets: {} means {} of {}, and the matrices of a mixture of experts cannot have adapters. Name others: {}.",
        refused_target_, refused_module_, name, join(others, ", ")));
  }
  LoraSpec resolved = spec_;
  if (spec_.targets.empty() || spec_.targets.front() == kAllLinear) {
    SHOAL_CHECK(!chosen_.empty(), "{} does not say which matrices make queries and values", name);
    resolved.targets = chosen_;
    return resolved;
  }
  for (const std::string& target : spec_.targets) {
    if (std::find(matching_.begin(), matching_.end(), target) != matching_.end()) continue;
    const std::string near = nearest_word(target, known_);
    refuse_lora(fmt::format("targets: {} has no matrix {} that can have adapters.{} It has {}; {} means all of them.",
                            name, target, near.empty() ? "" : fmt::format(" Did you mean {}?", near),
                            join(known_, ", "), kAllLinear));
  }
  return resolved;
}

}  // namespace shoal::models
