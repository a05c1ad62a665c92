// See param_groups.h.
#include "train/param_groups.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

bool is_matrix(const Parameter& param) { return param.tensor.dim() >= 2; }

// Of the head's rate, as a share: each layer below it learns at --layer-decay of the one above.
double share_of(size_t unit, size_t units, double layer_decay) {
  return std::pow(layer_decay, static_cast<double>(units - 1 - unit));
}

// Why layers cannot have rates of their own; "" where they can.
std::string one_rate_for_all(const SchedulerConfig& schedule) {
  switch (schedule.kind) {
    case SchedulerKind::one_cycle: return "the schedule OneCycle has learning rates of its own";
    case SchedulerKind::lr_range_test: return "the schedule LRRangeTest has learning rates of its own";
    case SchedulerKind::warmup:
    case SchedulerKind::warmup_decay:
      if (schedule.params.count("warmup_max_lr") != 0) return "scheduler.params.warmup_max_lr is one rate for all";
      return "";
    default: return "";
  }
}

}  // namespace

GroupedUnits group_params(std::vector<Unit> units, const TrainOptions& options, const Config& config) {
  GroupedUnits grouped = {std::move(units), {{}}};
  std::map<std::pair<size_t, bool>, int> numbers;  // by unit and whether it decays
  for (size_t unit = 0; unit < grouped.units.size(); ++unit) {
    const double share = share_of(unit, grouped.units.size(), options.layer_decay);
    for (Parameter& param : grouped.units[unit].params) {
      const bool decays = !options.no_decay || is_matrix(param);
      if (share == 1 && decays) continue;  // the first group, as the config has it
      const std::pair key = {share == 1 ? 0 : unit, decays};
      const auto [found, is_new] = numbers.try_emplace(key, static_cast<int>(grouped.groups.size()));
      if (is_new) {
        grouped.groups.push_back({share == 1 ? std::nullopt : std::optional(config.optimizer.lr * share),
                                  decays ? std::nullopt : std::optional(0.0)});
      }
      param.group = found->second;
    }
  }
  return grouped;
}

void check_param_groups(const TrainOptions& options, const Config& config) {
  if (!(options.layer_decay > 0 && options.layer_decay <= 1)) {
    throw Error("--layer-decay", fmt::format("{} is no share of a learning rate. Give a number above 0, at most 1.",
                                             options.layer_decay));
  }
  if (options.layer_decay == 1) return;
  if (const std::string why = one_rate_for_all(config.scheduler); !why.empty()) {
    throw Error("--layer-decay",
                why + ", and layers could not have theirs. Take it out of the config, or leave the flag out.");
  }
}

std::string param_group_change(const TrainOptions& options, const std::string& run_json) {
  bool no_decay = false;
  double layer_decay = 1;
  try {
    const json::Value about = json::parse(read_regular(run_json, "run.json", ""), run_json);
    if (const json::Value* value = about.find("no_decay"); value != nullptr) no_decay = value->as_boolean();
    if (const json::Value* value = about.find("layer_decay"); value != nullptr) layer_decay = value->as_number();
  } catch (const Error&) {
    return "";  // a checkpoint without its run, or of another program
  }
  if (no_decay == options.no_decay && layer_decay == options.layer_decay) return "";
  const auto flags = [](bool none, double share) {
    std::string text = none ? "--no-decay" : "";
    if (share < 1) text += fmt::format("{}--layer-decay {}", text.empty() ? "" : " ", share);
    return text.empty() ? "without --no-decay and --layer-decay" : "with " + text;
  };
  return fmt::format("so far the run was trained {}; it goes on {}", flags(no_decay, layer_decay),
                     flags(options.no_decay, options.layer_decay));
}

std::vector<std::string> param_group_lines(const std::vector<Unit>& units, const TrainOptions& options,
                                           const Config& config) {
  std::vector<std::string> lines;
  if (options.no_decay && !options.lora.empty()) {
    lines.emplace_back("--no-decay changes nothing: --lora trains neither norms nor biases");
  } else if (options.no_decay && config.optimizer.weight_decay == 0) {
    lines.emplace_back("--no-decay changes nothing: the weight decay is 0");
  } else if (options.no_decay) {
    int64_t numel = 0;
    for (const Unit& unit : units) {
      for (const Parameter& param : unit.params) numel += is_matrix(param) ? 0 : param.tensor.numel();
    }
    lines.push_back(
        fmt::format("--no-decay: no weight decay for norms and biases, {} parameters", format_count(numel)));
  }
  if (options.layer_decay < 1 && !units.empty()) {
    lines.push_back(fmt::format("--layer-decay {}: learning rates from {:.3g} ({}) to {:.3g} ({})", options.layer_decay,
                                config.optimizer.lr * share_of(0, units.size(), options.layer_decay),
                                units.front().name, config.optimizer.lr, units.back().name));
  }
  return lines;
}

}  // namespace shoal::train
