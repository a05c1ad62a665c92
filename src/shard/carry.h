// Carries routes out: one collective a hop, in the group along the hop's axis. See schedule/route.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "layout/cut.h"
#include "schedule/route.h"
#include "shoal/group.h"

namespace shoal {

// A channel, and the groups along the axes of the mesh that share its order of collectives.
class AxisGroups {
 public:
  // The channel outlives this. Collective where the mesh has several axes.
  AxisGroups(Group& channel, const Mesh& mesh);

  Group& channel() const { return channel_; }
  Group& along(std::string_view axis) const;

 private:
  Group& channel_;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> split_;  // none with one axis: it is the channel
};

// `last` says what the last hop is to be: subject, owner of the memory, what follows it, this rank's part, and where
// the route's end goes: hops on the way leave their results where the end will have them. The handle of the last hop:
// when it is over, all are.
Handle carry_gather(const Route& route, const AxisGroups& groups, const Cuts& cuts, const FlatLayout& flat,
                    AllGather last);
// Likewise. A reduction of one hop, which is all that a mesh of one axis has.
Handle carry_reduce(const Route& route, const AxisGroups& groups, ReduceScatter last);

}  // namespace shoal
