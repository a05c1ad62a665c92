// How long a hop between ranks takes, when nothing else is on the link. Pure.
//
// [Note: what crosses a host's network]
// Ranks fill hosts in their order, as launchers start them. Along an axis the ranks of a group stand on some hosts,
// some of them on each. A gather in a ring passes each host's border once: what is not on a host enters it once,
// whatever the number of its ranks. The exchange of strips that the exact reduction is made of does not: each rank
// sends a strip to each rank of other hosts, so as many times more bytes leave a host as it has ranks in the group.
// NCCL's own reduction is a ring. Where an axis has one rank a host, both are alike, and the groups of a host's ranks
// share its network.
#pragma once

#include "forecast/calibration.h"
#include "forecast/cluster.h"
#include "layout/mesh.h"
#include "schedule/route.h"

namespace shoal::forecast {

// How ranks along an axis stand on hosts.
struct GroupPlaces {
  int hosts = 1;            // that a group is on
  int ranks_per_host = 1;   // of a group on one of them
  int groups_per_host = 1;  // of the same axis that a host takes part in: they move at the same time
};
GroupPlaces places_of(const Mesh& mesh, std::string_view axis, int gpus_per_host);

// Which link something is on: those on one share its bandwidth. bus: from the host to its GPU.
enum class Path : uint8_t { none, inside, between, bus };
inline constexpr int kPaths = 4;

struct LinkUse {
  double seconds = 0;
  Path path = Path::none;
  double host_nbytes = 0;  // that leave a host
};

// `exchanges`: a reduction is an exchange of strips, each to its owner. `wire`: bytes of what travels, of those that
// the hop's dtype has (1, or less where it is quantized).
LinkUse link_use(const Hop& hop, const Mesh& mesh, const Cluster& cluster, const Calibration& by, bool exchanges,
                 double wire = 1);

}  // namespace shoal::forecast
