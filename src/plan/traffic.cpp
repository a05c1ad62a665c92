// See traffic.h.
#include "plan/traffic.h"

#include <algorithm>
#include <numeric>

#include "plan/memory.h"

namespace shoal {

namespace {

// Bytes of the units that the second pass gathers; the first one only records the order.
uint64_t gathered_in_a_pass(const ModelLayout& layout, int stage, const GatherLimits& limits) {
  std::vector<int64_t> numel;
  std::vector<uint64_t> shard_nbytes;
  for (const UnitLayout& unit : layout.units) {
    numel.push_back(gathered_numel(unit, stage));
    uint64_t nbytes = 0;
    for (const FlatLayout& flat : unit.flats) {
      if (row_of(flat, stage).shard_weights) {
        nbytes += static_cast<uint64_t>(flat.shard_numel) * nbytes_of(flat.dtype);
      }
    }
    shard_nbytes.push_back(nbytes);
  }
  GatherSchedule schedule(numel, limits);
  std::vector<int> order(layout.units.size());
  std::iota(order.begin(), order.end(), 0);
  uint64_t gathered = 0;
  const auto count = [&](const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (action.verb == Action::Verb::gather) gathered += shard_nbytes[static_cast<size_t>(action.unit)];
    }
  };
  for (int pass = 0; pass < 2; ++pass) {
    gathered = 0;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      count(schedule.begin(phase));
      for (const int unit : order) {
        std::vector<int> needed = layout.units[static_cast<size_t>(unit)].borrows;
        needed.push_back(unit);
        for (const int each : needed) count(schedule.enter(each));
        for (const int each : needed) count(schedule.exit(each));
      }
      std::reverse(order.begin(), order.end());
    }
    count(schedule.finish());
  }
  return gathered;
}

}  // namespace

StepTraffic plan_traffic(const ModelLayout& layout, const GradientOptions& gradients, const GatherLimits& limits) {
  const uint64_t others = static_cast<uint64_t>(layout.world - 1);
  const uint64_t micro_steps = static_cast<uint64_t>(gradients.accumulation_steps);
  StepTraffic traffic;
  traffic.gathered = others * micro_steps * gathered_in_a_pass(layout, gradients.stage, limits);
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (!flat.trainable) continue;
      const GradientRule rule = gradient_rule(flat, gradients);
      const StageRow row = row_of(flat, gradients.stage);
      const uint64_t shard = others * static_cast<uint64_t>(flat.shard_numel);
      traffic.reduced += shard * nbytes_of(rule.wire) * (rule.every_micro_step ? micro_steps : 1);
      if (!row.shard_states) traffic.reduced += shard * nbytes_of(rule.kept);
      if (row.shard_states && !row.shard_weights) traffic.published += shard * nbytes_of(flat.dtype);
    }
  }
  return traffic;
}

}  // namespace shoal
