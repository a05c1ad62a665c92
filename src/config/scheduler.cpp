// The section "scheduler": its type, and the parameters that each type takes, by DeepSpeed's names and defaults. The
// last two types are not DeepSpeed's.
#include <fmt/format.h>

#include <algorithm>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

using Types = std::vector<std::pair<std::string, Value>>;

const std::vector<std::string> kTypes = {"WarmupLR",    "WarmupDecayLR",       "WarmupCosineLR",        "OneCycle",
                                         "LRRangeTest", "WarmupStableDecayLR", "WarmupCosineRestartsLR"};
const std::vector<std::string> kDecayCurves = {"cosine", "linear", "1-sqrt"};  // as DecayCurve has them

// Parameters travel as numbers by name; an absent one is one that was left to its null default.
Key param(Key key) {
  const std::string name = key.name;
  const Type type = key.type;
  return key.fills({[name](Config& c, const Value& value) {
                      if (value.is_null()) return;
                      c.scheduler.params[name] = value.is_boolean() ? value.as_boolean() : value.as_number();
                    },
                    [name, type](const Config& c) {
                      const auto found = c.scheduler.params.find(name);
                      if (found == c.scheduler.params.end()) return Value();
                      if (type == Type::boolean) return Value(found->second != 0);
                      if (type == Type::integer) return Value(static_cast<int64_t>(found->second));
                      return Value(found->second);
                    }});
}

// null may be written where it is the default of some type.
Key with_types(Key key, Types types) {
  key.nullable = std::any_of(types.begin(), types.end(), [](const auto& type) { return type.second.is_null(); });
  return param(std::move(key)).of_types(std::move(types));
}

Key number_of(const char* name, Types types) { return with_types(number(name, Value()), std::move(types)).at_least(0); }

Key count_of(const char* name, Types types) {
  return with_types(integer(name, Value()), std::move(types)).at_least(0).at_most(1e15).in("steps");
}

std::string warn_of_endless_warmup(const Value& value, const Settings& all) {
  const Value warmup = all.value("scheduler.params.warmup_num_steps");
  if (warmup.as_integer() <= value.as_integer()) return "";
  return fmt::format("{} ends before warmup_num_steps, {}, so the whole run is warm-up", value.as_integer(),
                     warmup.as_integer());
}

std::string warn_of_cut_decay(const Value& value, const Settings& all) {
  if (value.is_null()) return "";
  const int64_t total = all.value("scheduler.params.total_num_steps").as_integer();
  const int64_t left = total - all.value("scheduler.params.warmup_num_steps").as_integer();
  if (value.as_integer() <= left) return "";
  return fmt::format("the decay begins after the warm-up, {} steps before the end, and does not end",
                     std::max<int64_t>(0, left));
}

std::string warn_of_no_fall(const Value& value, const Settings& all) {
  if (value.as_number() == 0 || all.value("scheduler.params.decay_step_size").as_integer() != 0) return "";
  return "no effect, since decay_step_size is 0: nothing changes after the cycle";
}

// As DeepSpeed, which cycles "betas" and goes without where the optimizer has none.
std::string warn_of_no_momentum(const Value& value, const Settings& all) {
  if (value.is_null() || value.as_text() != "OneCycle") return "";
  const Value optimizer = all.value("optimizer.type");
  const OptimizerRow* row = optimizer.is_null() ? nullptr : find_optimizer(optimizer.as_text());
  if (row == nullptr || row->takes("betas")) return "";
  if (!all.value("scheduler.params.cycle_momentum").as_boolean()) return "";
  return fmt::format("only the learning rate is cycled, since {} has no betas; cycle_momentum has no effect",
                     optimizer.as_text());
}

std::vector<Key> warmup_keys() {
  return {
      number_of("warmup_min_lr", {{"WarmupLR", 0.0}, {"WarmupDecayLR", 0.0}})
          .means("The learning rate at the start.")
          .on_auto("0", [](const ConfigContext&, const Settings&) { return Known(); }),
      number_of("warmup_max_lr", {{"WarmupLR", Value()}, {"WarmupDecayLR", 1e-3}})
          .means("The learning rate after the warm-up. null: that of the parameter group.")
          .on_auto("the caller's learning rate; else the optimizer's",
                   [](const ConfigContext& c, const Settings& all) {
                     return Known(c.lr ? Value(*c.lr) : all.value("optimizer.params.lr"));
                   }),
      count_of("total_num_steps", {{"WarmupDecayLR", Value()},
                                   {"WarmupCosineLR", Value()},
                                   {"WarmupStableDecayLR", Value()},
                                   {"WarmupCosineRestartsLR", Value()}})
          .at_least(1)
          .is_required()
          .means("The step at which the decay ends.")
          .on_auto("the caller's; an error when there is none",
                   [](const ConfigContext& c, const Settings&) { return Known(c.total_steps); })
          .warns(warn_of_endless_warmup),
      number_of("warmup_min_ratio", {{"WarmupCosineLR", 0.0}}).means("The first share of the learning rate."),
      count_of("warmup_num_steps", {{"WarmupLR", 1000},
                                    {"WarmupDecayLR", 1000},
                                    {"WarmupCosineLR", 1000},
                                    {"WarmupStableDecayLR", 0},
                                    {"WarmupCosineRestartsLR", 0}})
          .means("Steps of the warm-up; in DeepSpeed's three types below 2 it is 2, as there.")
          .on_auto("the caller's; else the default",
                   [](const ConfigContext& c, const Settings&) { return Known(c.warmup_steps); }),
      number_of("cos_min_ratio", {{"WarmupCosineLR", 1e-4}}).means("The last share of the learning rate."),
      text("warmup_type", "log")
          .of_types({{"WarmupLR", "log"}, {"WarmupDecayLR", "log"}, {"WarmupCosineLR", "log"}})
          .one_of({"log", "linear"})
          .means("The curve of the warm-up.")
          .fills({[](Config& c, const Value& value) { c.scheduler.log_warmup = value.as_text() == "log"; },
                  [](const Config& c) { return Value(c.scheduler.log_warmup ? "log" : "linear"); }}),
  };
}

// By the names of transformers.
std::vector<Key> decay_keys() {
  return {
      count_of("decay_num_steps", {{"WarmupStableDecayLR", Value()}})
          .at_least(1)
          .means("Steps of the decay, the last ones of total_num_steps. null: a tenth of them.")
          .warns(warn_of_cut_decay),
      text("decay_type", "cosine")
          .of_types({{"WarmupStableDecayLR", "cosine"}})
          .one_of(kDecayCurves)
          .means("The curve of the decay.")
          .fills(
              {[](Config& c, const Value& value) {
                 const auto found = std::find(kDecayCurves.begin(), kDecayCurves.end(), value.as_text());
                 c.scheduler.decay_curve = static_cast<DecayCurve>(found - kDecayCurves.begin());
               },
               [](const Config& c) { return Value(kDecayCurves.at(static_cast<size_t>(c.scheduler.decay_curve))); }}),
      number_of("min_lr_ratio", {{"WarmupStableDecayLR", 0.0}, {"WarmupCosineRestartsLR", 0.0}})
          .at_most(1)
          .means("The least share of the learning rate, at the end; of WarmupStableDecayLR at the start too."),
      count_of("num_cycles", {{"WarmupCosineRestartsLR", 1}})
          .at_least(1)
          .means("Times that the cosine falls, each from the full learning rate.")
          .in(""),
  };
}

std::vector<Key> cycle_keys() {
  const auto once = [](Value fallback) { return Types{{"OneCycle", std::move(fallback)}}; };
  return {
      number_of("cycle_min_lr", once(Value())).is_required().means("The learning rate at both ends of the cycle."),
      number_of("cycle_max_lr", once(Value())).is_required().means("The learning rate in the middle of the cycle."),
      number_of("decay_lr_rate", once(0.0))
          .means("How fast the learning rate falls after the cycle.")
          .warns(warn_of_no_fall),
      count_of("cycle_first_step_size", once(2000)).at_least(1).means("Steps of the rising half."),
      count_of("cycle_second_step_size", once(Value())).at_least(1).means("Steps of the falling half. null: as many."),
      count_of("cycle_first_stair_count", once(0)).means("Stairs in the rising half. 0: a smooth line."),
      count_of("cycle_second_stair_count", once(Value())).means("Stairs in the falling half. null: as many."),
      count_of("decay_step_size", once(0)).means("Steps between falls after the cycle. 0: no fall."),
      param(boolean("cycle_momentum", true).of_types(once(true)))
          .means("Cycle the momentum (the first beta) too, the other way. SGD and Adagrad have none."),
      number_of("cycle_min_mom", once(0.8)).below(1).means("The momentum in the middle of the cycle."),
      number_of("cycle_max_mom", once(0.9)).below(1).means("The momentum at both ends of the cycle."),
      number_of("decay_mom_rate", once(0.0))
          .means("How fast the momentum rises after the cycle.")
          .warns(warn_of_no_fall),
  };
}

std::vector<Key> other_schedule_keys() {
  Types none;
  for (const std::string& type : kTypes) none.emplace_back(type, -1);
  return {
      number_of("lr_range_test_min_lr", {{"LRRangeTest", 1e-3}}).means("The first learning rate."),
      count_of("lr_range_test_step_size", {{"LRRangeTest", 2000}}).at_least(1).means("Steps of one interval."),
      number_of("lr_range_test_step_rate", {{"LRRangeTest", 1.0}})
          .means("What an interval adds, as a share of the first."),
      param(boolean("lr_range_test_staircase", false).of_types({{"LRRangeTest", false}})).means("Rise in stairs."),
      integer("last_batch_iteration", -1)
          .of_types(none)
          .at_least(-1)
          .in("steps")
          .means("The step to resume after.")
          .is_refused("is not supported yet. Remove the key."),
  };
}

}  // namespace

std::vector<Section> scheduler_sections() {
  Section scheduler{.path = "scheduler",
                    .meaning = "The learning rate over the steps.",
                    .keys = {
                        text("type", Value())
                            .one_of(kTypes)
                            .means("The schedule; null or no section: the optimizer's learning rate throughout.")
                            .fills({[](Config& c, const Value& value) {
                                      c.scheduler.kind = SchedulerKind::none;
                                      for (size_t i = 0; i < kTypes.size() && !value.is_null(); ++i) {
                                        if (kTypes[i] == value.as_text())
                                          c.scheduler.kind = static_cast<SchedulerKind>(i + 1);
                                      }
                                    },
                                    [](const Config& c) {
                                      const size_t kind = static_cast<size_t>(c.scheduler.kind);
                                      return kind == 0 ? Value() : Value(kTypes.at(kind - 1));
                                    }})
                            .warns(warn_of_no_momentum),
                    }};
  Section params{.path = "scheduler.params", .meaning = "The parameters of the schedule's type.", .keys = {}};
  params.type_key = "scheduler.type";
  for (const auto& make : {warmup_keys, decay_keys, cycle_keys, other_schedule_keys}) {
    for (Key& key : make()) params.keys.push_back(std::move(key));
  }
  return {std::move(scheduler), std::move(params)};
}

}  // namespace shoal::config
