// See route.h.
#include "schedule/route.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace shoal {

namespace {

bool has_replicas(const Mesh& mesh) { return mesh.size_of(kReplica) > 1; }

Hop hop(Hop::Verb verb, std::string_view axis, int64_t part_numel, Over yields, const Mesh& mesh, Wire wire) {
  return {.verb = verb,
          .axis = axis,
          .ranks = axis == kWorld ? mesh.world() : mesh.size_of(axis),
          .part_numel = part_numel,
          .yields = yields,
          .wire = wire};
}

void check_axes(const Mesh& mesh) {
  SHOAL_CHECK(mesh.shards() * mesh.size_of(kReplica) == mesh.world(), "no route over the mesh {}", mesh.to_text());
}

}  // namespace

Route gather_route(const FlatLayout& flat, Over from, Over to, const Mesh& mesh, Wire wire) {
  check_axes(mesh);
  SHOAL_CHECK(from >= to, "a gather cannot cut");
  Route route;
  const auto passes = [&](Over part) { return from >= part && to < part; };
  const auto gather = [&](std::string_view axis, int64_t part_numel, Over yields) {
    route.push_back(hop(Hop::Verb::all_gather, axis, part_numel, yields, mesh, wire));
  };
  if (passes(Over::world) && has_replicas(mesh)) gather(kReplica, flat.rank_numel, Over::shard);
  if (passes(Over::shard) && mesh.size_of(kSpan) > 1) gather(kSpan, flat.shard_numel, Over::inner);
  if (passes(Over::inner)) gather(kShard, flat.inner_numel, Over::nobody);
  return route;
}

Route reduce_route(const FlatLayout& flat, const Mesh& mesh, Wire wire, Travel travel, Wire of_sums) {
  check_axes(mesh);
  if (travel == Travel::sums) {
    SHOAL_CHECK(mesh.size_of(kSpan) == 1, "sums over the mesh {}", mesh.to_text());
    return {hop(Hop::Verb::reduce_scatter, kShard, flat.shard_numel, Over::shard, mesh, wire),
            hop(Hop::Verb::reduce_scatter, kReplica, flat.rank_numel, Over::world, mesh, of_sums)};
  }
  const std::string_view axis = mesh.axes().size() == 1 ? kShard : kWorld;
  return {hop(Hop::Verb::reduce_scatter, axis, flat.rank_numel, Over::world, mesh, wire)};
}

// See [Note: leaves travel in one hop, sums in two].
Travel travel_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh) {
  const int shards = mesh.size_of(kShard);
  const GradientRule rule = gradient_rule(flat, options);
  const bool groups = rule.every_micro_step && options.fold_group == shards;
  const bool saves = sizeof(float) < static_cast<size_t>(shards) * nbytes_of(rule.wire);
  const bool quantized = options.sum_bits > 0 && rule.every_micro_step;
  const bool may = has_replicas(mesh) && mesh.size_of(kSpan) == 1;
  return may && (quantized || (groups && saves)) ? Travel::sums : Travel::leaves;
}

Wire wire_of_sums(const FlatLayout& flat, const GradientOptions& options) {
  return {DType::f32, flat.persistent ? 0 : options.sum_bits};
}

std::vector<int> ranks_along(std::string_view axis, const Mesh& mesh, int rank) {
  return axis == kWorld ? ranks_by_part(mesh) : mesh.along(axis, rank);
}

FlatRoutes routes_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh) {
  const Ways ways = ways_of(flat, options.stage);
  FlatRoutes routes;
  routes.gather = gather_route(flat, ways.weights, Over::nobody, mesh, {flat.dtype});
  if (!flat.trainable) return routes;
  const GradientRule rule = gradient_rule(flat, options);
  routes.reduce = reduce_route(flat, mesh, {rule.wire}, travel_of(flat, options, mesh), wire_of_sums(flat, options));
  routes.share = gather_route(flat, ways.summed, ways.updated, mesh, {rule.kept});
  routes.publish = gather_route(flat, ways.updated, ways.published, mesh, {flat.dtype});
  return routes;
}

uint64_t sent_nbytes(const Route& route) {
  uint64_t nbytes = 0;
  for (const Hop& hop : route) nbytes += hop.sent_nbytes();
  return nbytes;
}

size_t sums_nbytes(const Route& reduce) {
  size_t nbytes = 0;
  for (size_t index = 0; index + 1 < reduce.size(); ++index) {
    nbytes = std::max(nbytes, static_cast<size_t>(reduce[index].part_numel) * sizeof(float));
  }
  return nbytes;
}

std::string to_text(const Route& route) {
  std::string text;
  for (const Hop& hop : route) {
    text += fmt::format("{} along {} of {}: {} {} each{}\n",
                        hop.verb == Hop::Verb::all_gather ? "all_gather" : "reduce_scatter", hop.axis, hop.ranks,
                        hop.part_numel, name_of(hop.wire.dtype),
                        hop.wire.is_blocks() ? fmt::format(", in blocks of int{}", hop.wire.bits) : "");
  }
  return text;
}

}  // namespace shoal
