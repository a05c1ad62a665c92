// See carry.h.
#include "shard/carry.h"

#include <utility>

#include "base/check.h"

namespace shoal {

AxisGroups::AxisGroups(Group& channel, const Mesh& mesh) : channel_(channel) {
  SHOAL_CHECK(mesh.world() == channel.size(), "a channel of {} ranks and a mesh of {}", channel.size(), mesh.to_text());
  if (mesh.axes().size() == 1) return;
  for (const Axis& axis : mesh.axes()) {
    Parts lines;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      if (mesh.at(rank, axis.name) == 0) lines.push_back(mesh.along(axis.name, rank));
    }
    split_.emplace(axis.name, channel.split(axis.name, lines));
  }
}

Group& AxisGroups::along(std::string_view axis) const {
  if (split_.empty() && axis == kShard) return channel_;
  const auto found = split_.find(axis);
  SHOAL_CHECK(found != split_.end(), "no group along {}", axis);
  return *found->second;
}

Handle carry_gather(const Route& route, const AxisGroups& groups, const Cuts& cuts, const FlatLayout& flat,
                    AllGather last) {
  SHOAL_CHECK(!route.empty(), "a gather of nothing");
  auto* const end = static_cast<std::byte*>(last.whole);
  const int64_t end_begins = cuts.over(flat, route.back().yields).begin;
  for (size_t index = 0; index + 1 < route.size(); ++index) {
    const Hop& hop = route[index];
    std::byte* const yield = end + hop.wire.nbytes(cuts.over(flat, hop.yields).begin - end_begins);
    AllGather step;
    step.subject = last.subject;
    step.shard = last.shard;
    step.whole = yield;
    step.shard_nbytes = hop.wire.nbytes(hop.part_numel);
    step.keep = last.keep;
    groups.along(hop.axis).all_gather(std::move(step));
    last.shard = yield;
  }
  const Hop& hop = route.back();
  last.shard_nbytes = hop.wire.nbytes(hop.part_numel);
  return groups.along(hop.axis).all_gather(std::move(last));
}

Handle carry_reduce(const Route& route, const AxisGroups& groups, ReduceScatter last) {
  SHOAL_CHECK(route.size() == 1 && route[0].verb == Hop::Verb::reduce_scatter, "a reduction of {} hops", route.size());
  const Hop& hop = route[0];
  last.whole_dtype = hop.wire.dtype;
  last.shard_numel = hop.part_numel;
  return groups.along(hop.axis).reduce_scatter(std::move(last));
}

}  // namespace shoal
