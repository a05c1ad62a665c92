// See traffic.h.
#include "plan/traffic.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "layout/norm_tops.h"
#include "plan/from_config.h"
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

StepTraffic plan_traffic(const ModelLayout& layout, const GradientOptions& gradients, const GatherLimits& limits,
                         const TrafficOptions& options) {
  const auto micro_steps = static_cast<uint64_t>(gradients.accumulation_steps);
  const std::vector<uint64_t> gathers = gathers_in_a_pass(layout, gradients.stage, limits);
  ShardOptions shards = options.shards;
  shards.stage = gradients.stage;
  const auto is_elsewhere = [&](int peer) {
    return !options.hosts.empty() &&
           options.hosts[static_cast<size_t>(peer)] != options.hosts[static_cast<size_t>(options.rank)];
  };
  std::map<std::string_view, uint64_t> elsewhere;  // ranks along an axis that stand on other hosts
  const auto count_elsewhere = [&](std::string_view axis) {
    const auto [found, is_new] = elsewhere.emplace(axis, 0);
    if (is_new && !options.hosts.empty()) {
      for (const int peer : ranks_along(axis, layout.mesh, options.rank)) found->second += is_elsewhere(peer) ? 1 : 0;
    }
    return found->second;
  };
  StepTraffic traffic;
  const auto count_hop = [&](uint64_t& kind, const Hop& hop, uint64_t times) {
    kind += hop.sent_nbytes() * times;
    traffic.by_axis[std::string(hop.axis)] += hop.sent_nbytes() * times;
    traffic.between_hosts += hop.wire.nbytes(hop.part_numel) * times * count_elsewhere(hop.axis);
  };
  const auto count = [&](uint64_t& kind, const Route& route, uint64_t times) {
    for (const Hop& hop : route) count_hop(kind, hop, times);
  };
  for (size_t index = 0; index < layout.units.size(); ++index) {
    const UnitLayout& unit = layout.units[index];
    const bool changes = changes_shards(unit, gradients.stage);
    for (const FlatLayout& flat : unit.flats) {
      const FlatRoutes routes = routes_of(flat, gradients, layout.mesh);
      const Wire wire = weight_wire(flat, shards);
      const uint64_t times = gathers[index] * micro_steps;
      if (keeps_second(flat, shards)) {
        const uint64_t fills = changes ? std::min<uint64_t>(times, 1) : 0;
        count(traffic.gathered, gather_route(flat, Over::world, Over::shard, layout.mesh, wire), fills);
        count(traffic.gathered, gather_route(flat, Over::shard, Over::nobody, layout.mesh, wire), times);
      } else {
        const Over from = ways_of(flat, gradients.stage).weights;
        count(traffic.gathered, gather_route(flat, from, Over::nobody, layout.mesh, wire), times);
      }
      if (!flat.trainable) continue;
      count(traffic.reduced, routes.reduce, gradient_rule(flat, gradients).every_micro_step ? micro_steps : 1);
      count(traffic.reduced, routes.share, 1);
      count(traffic.published, routes.publish, 1);
    }
  }
  const uint64_t norm_nbytes = static_cast<uint64_t>(norm_tops(layout).places) * sizeof(double);
  traffic.norm = norm_nbytes * static_cast<uint64_t>(layout.mesh.world() - 1);
  for (int peer = 0; peer < layout.mesh.world(); ++peer) {
    if (is_elsewhere(peer)) traffic.norm_between_hosts += norm_nbytes;
  }
  return traffic;
}

StepTraffic plan_traffic(const ModelLayout& layout, const Config& config, int rank) {
  TrafficOptions options{.shards = shard_options(config), .rank = rank};
  const int in_host = config.shoal.ranks_per_host;
  for (int each = 0; in_host > 0 && each < layout.mesh.world(); ++each) options.hosts.push_back(each / in_host);
  return plan_traffic(layout, gradient_options(config), gather_limits(config), options);
}

}  // namespace shoal
