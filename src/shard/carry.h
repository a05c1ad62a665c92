// Carries routes out: one collective a hop, in the group along the hop's axis. See schedule/route.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "layout/cut.h"
#include "schedule/route.h"
#include "shard/quantized_sums.h"
#include "shoal/group.h"

namespace shoal {

// A channel, and the groups along the axes of the mesh that share its order of collectives.
class AxisGroups {
 public:
  // The channel outlives the groups. Collective where the mesh has several axes: a group for each that a route may
  // take.
  AxisGroups(Group& channel, const Mesh& mesh,
             const std::set<std::string_view>& axes = {kReplica, kSpan, kShard, kWorld});

  Group& channel() const { return channel_; }
  Group& along(std::string_view axis) const;
  // Ends the groups, and waits for their collectives, which fail unless the peers are there already. Before the channel
  // goes, and before memory that they move.
  void close() { split_.clear(); }
  // What the groups have cost beside the channel.
  Traffic traffic() const;
  double waited_seconds() const;
  double carried_seconds() const;  // by the host
  size_t staging_nbytes() const;

 private:
  Group& channel_;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> split_;  // none with one axis: it is the channel
};

// The axes of all routes of all flats.
std::set<std::string_view> axes_of(const ModelLayout& layout,
                                   const std::function<std::vector<Route>(const FlatLayout&)>& routes);

// `last` says what the last hop is to be: subject, owner of the memory, what follows it, this rank's part, and where
// the route's end goes: hops on the way leave their results where the end will have them. The handle of the last hop:
// when it is over, all are.
Handle carry_gather(const Route& route, const AxisGroups& groups, const Cuts& cuts, const FlatLayout& flat,
                    AllGather last);
// Likewise; `last` says what becomes of the sum. Leaves are folded in the order of ranks, whatever the route. Sums that
// travel from one hop to the next lie in memory of `sums` meanwhile, which is the channel's: the next reduction may use
// it at once, as the channel's collectives run in order. Sums that travel in blocks become blocks in that memory, which
// also takes those of the other ranks.
Handle carry_reduce(const Route& route, const AxisGroups& groups, ReduceScatter last, const SumsOnWay& sums = {});

}  // namespace shoal
