// See route.h.
#include "schedule/route.h"

#include <fmt/format.h>

#include "base/check.h"

namespace shoal {

namespace {

bool has_replicas(const Mesh& mesh) { return mesh.size_of(kReplica) > 1; }

Hop hop(Hop::Verb verb, std::string_view axis, int64_t part_numel, Over yields, const Mesh& mesh, Wire wire) {
  return {.verb = verb,
          .axis = axis,
          .ranks = mesh.size_of(axis),
          .part_numel = part_numel,
          .yields = yields,
          .wire = wire};
}

}  // namespace

Route gather_route(const FlatLayout& flat, Over from, Over to, const Mesh& mesh, Wire wire) {
  SHOAL_CHECK(mesh.size_of(kShard) * mesh.size_of(kReplica) == mesh.world(), "no route over the mesh {}",
              mesh.to_text());
  SHOAL_CHECK(from >= to, "a gather cannot cut");
  Route route;
  if (from == Over::world && to != Over::world && has_replicas(mesh)) {
    route.push_back(hop(Hop::Verb::all_gather, kReplica, flat.rank_numel, Over::shard, mesh, wire));
  }
  if (from != Over::nobody && to == Over::nobody) {
    route.push_back(hop(Hop::Verb::all_gather, kShard, flat.shard_numel, Over::nobody, mesh, wire));
  }
  return route;
}

Route reduce_route(const FlatLayout& flat, Over to, const Mesh& mesh, Wire wire) {
  const Over cut_to = has_replicas(mesh) ? Over::world : to == Over::nobody ? Over::shard : to;
  Route route = {hop(Hop::Verb::reduce_scatter, kShard, flat.shard_numel, Over::shard, mesh, wire)};
  if (has_replicas(mesh)) {
    route.push_back(hop(Hop::Verb::reduce_scatter, kReplica, flat.rank_numel, Over::world, mesh, wire));
  }
  route.back().yields = cut_to;
  for (const Hop& back : gather_route(flat, cut_to, to, mesh, wire)) route.push_back(back);
  return route;
}

FlatRoutes routes_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh) {
  const Ways ways = ways_of(flat, options.stage);
  FlatRoutes routes;
  routes.gather = gather_route(flat, ways.weights, Over::nobody, mesh, {flat.dtype});
  if (!flat.trainable) return routes;
  const GradientRule rule = gradient_rule(flat, options);
  routes.reduce = reduce_route(flat, ways.summed, mesh, {rule.wire});
  if (ways.updated == Over::nobody) routes.share = gather_route(flat, ways.summed, Over::nobody, mesh, {rule.kept});
  routes.publish = gather_route(flat, ways.updated, ways.published, mesh, {flat.dtype});
  return routes;
}

uint64_t sent_nbytes(const Route& route) {
  uint64_t nbytes = 0;
  for (const Hop& hop : route) nbytes += hop.sent_nbytes();
  return nbytes;
}

std::string to_text(const Route& route) {
  std::string text;
  for (const Hop& hop : route) {
    text += fmt::format("{} along {} of {}: {} {} each\n",
                        hop.verb == Hop::Verb::all_gather ? "all_gather" : "reduce_scatter", hop.axis, hop.ranks,
                        hop.part_numel, name_of(hop.wire.dtype));
  }
  return text;
}

}  // namespace shoal
