// See traffic.h.
#include "plan/traffic.h"

#include <algorithm>
#include <numeric>

#include "plan/memory.h"
#include "schedule/route.h"

namespace shoal {

namespace {

// How often each unit is gathered in the second pass; the first one only records the order.
std::vector<uint64_t> gathers_in_a_pass(const ModelLayout& layout, const Stage& stage, const GatherLimits& limits) {
  std::vector<int64_t> numel;
  for (const UnitLayout& unit : layout.units) numel.push_back(gathered_numel(unit, stage));
  GatherSchedule schedule(numel, limits);
  std::vector<int> order(layout.units.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<uint64_t> gathers;
  const auto count = [&](const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (action.verb == Action::Verb::gather) ++gathers[static_cast<size_t>(action.unit)];
    }
  };
  for (int pass = 0; pass < 2; ++pass) {
    gathers.assign(layout.units.size(), 0);
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
  return gathers;
}

}  // namespace

StepTraffic plan_traffic(const ModelLayout& layout, const GradientOptions& gradients, const GatherLimits& limits) {
  const auto micro_steps = static_cast<uint64_t>(gradients.accumulation_steps);
  const std::vector<uint64_t> gathers = gathers_in_a_pass(layout, gradients.stage, limits);
  StepTraffic traffic;
  const auto count = [&](uint64_t& kind, const Route& route, uint64_t times) {
    for (const Hop& hop : route) {
      kind += hop.sent_nbytes() * times;
      traffic.by_axis[std::string(hop.axis)] += hop.sent_nbytes() * times;
    }
  };
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const FlatLayout& flat : layout.units[unit].flats) {
      const FlatRoutes routes = routes_of(flat, gradients, layout.mesh);
      count(traffic.gathered, routes.gather, gathers[unit] * micro_steps);
      if (!flat.trainable) continue;
      count(traffic.reduced, routes.reduce, gradient_rule(flat, gradients).every_micro_step ? micro_steps : 1);
      count(traffic.reduced, routes.share, 1);
      count(traffic.published, routes.publish, 1);
    }
  }
  return traffic;
}

}  // namespace shoal
