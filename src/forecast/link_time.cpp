// See link_time.h.
#include "forecast/link_time.h"

#include <algorithm>

namespace shoal::forecast {

GroupPlaces places_of(const Mesh& mesh, std::string_view axis, int gpus_per_host) {
  // Rank r of an axis stands `stride` ranks behind rank r - 1: the axes after it are the faster ones.
  int stride = 1;
  const bool all = axis == kWorld;
  for (auto each = mesh.axes().rbegin(); !all && each != mesh.axes().rend() && each->name != axis; ++each) {
    stride *= each->size;
  }
  const int ranks = all ? mesh.world() : mesh.size_of(axis);
  GroupPlaces places;
  places.ranks_per_host = std::clamp(gpus_per_host / std::max(1, stride), 1, std::max(1, ranks));
  places.hosts = (ranks + places.ranks_per_host - 1) / places.ranks_per_host;
  places.groups_per_host = std::max(1, std::min(gpus_per_host, mesh.world()) / places.ranks_per_host);
  return places;
}

LinkUse link_use(const Hop& hop, const Mesh& mesh, const Cluster& cluster, const Calibration& by, bool exchanges,
                 double wire) {
  LinkUse use;
  if (hop.ranks <= 1) return use;
  const GroupPlaces places = places_of(mesh, hop.axis, cluster.gpus_per_host);
  const double part = static_cast<double>(hop.wire.nbytes(hop.part_numel)) * wire;
  const int ranks = hop.ranks;
  const bool exchange = exchanges && hop.verb == Hop::Verb::reduce_scatter;
  use.path = Path::inside;
  if (places.ranks_per_host > 1) {
    // In a ring every rank passes everything on; in an exchange what goes to the host's own ranks.
    const double sent = exchange ? part * (places.ranks_per_host - 1) : part * (ranks - 1);
    use.seconds = sent / (cluster.inside.bandwidth * by.inside);
  }
  double latency = cluster.inside.latency * (exchange ? 1 : ranks - places.hosts);
  if (places.hosts > 1) {
    use.path = Path::between;
    const double strips = exchange ? places.ranks_per_host * static_cast<double>(ranks - places.ranks_per_host)
                                   : static_cast<double>(ranks - places.ranks_per_host);
    use.host_nbytes = part * strips * places.groups_per_host;
    use.seconds = std::max(use.seconds, use.host_nbytes / (cluster.between.bandwidth * by.between));
    latency += cluster.between.latency * (exchange ? 1 : places.hosts);
  }
  use.seconds += latency;
  return use;
}

}  // namespace shoal::forecast
