// See carry.h.
#include "shard/carry.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/group/full_group.h"

namespace shoal {

AxisGroups::AxisGroups(Group& channel, const Mesh& mesh, const std::set<std::string_view>& axes) : channel_(channel) {
  SHOAL_CHECK(mesh.world() == channel.size(), "a channel of {} ranks and a mesh of {}", channel.size(), mesh.to_text());
  if (mesh.axes().size() == 1) return;
  for (const Axis& axis : mesh.axes()) {
    if (!axes.contains(axis.name)) continue;
    Parts lines;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      if (mesh.at(rank, axis.name) == 0) lines.push_back(mesh.along(axis.name, rank));
    }
    split_.emplace(axis.name, channel.split(axis.name, lines));
  }
  if (axes.contains(kWorld)) split_.emplace(kWorld, channel.split("all ranks", {ranks_by_part(mesh)}));
}

Group& AxisGroups::along(std::string_view axis) const {
  if (split_.empty() && axis == kShard) return channel_;
  const auto found = split_.find(axis);
  SHOAL_CHECK(found != split_.end(), "no group along {}", axis);
  return *found->second;
}

Traffic AxisGroups::traffic() const {
  Traffic sum;
  for (const auto& [axis, group] : split_) sum += group->traffic();
  return sum;
}

double AxisGroups::waited_seconds() const {
  double sum = 0;
  for (const auto& [axis, group] : split_) sum += full(*group).waited_seconds();
  return sum;
}

double AxisGroups::carried_seconds() const {
  if (full(channel_).stream() != nullptr) return 0;  // only given to the device by the worker
  double sum = 0;
  for (const auto& [axis, group] : split_) sum += full(*group).carried_seconds();
  return sum;
}

size_t AxisGroups::staging_nbytes() const {
  size_t sum = 0;
  for (const auto& [axis, group] : split_) sum += full(*group).staging_nbytes();
  return sum;
}

std::set<std::string_view> axes_of(const ModelLayout& layout,
                                   const std::function<std::vector<Route>(const FlatLayout&)>& routes) {
  std::set<std::string_view> axes;
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      for (const Route& route : routes(flat)) {
        for (const Hop& hop : route) axes.insert(hop.axis);
      }
    }
  }
  return axes;
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

namespace {

// The group counts ranks by their parts; their leaves are folded by their numbers in the world.
std::vector<int> fold_order(const Group& group) {
  const std::vector<int>& members = group.members();
  std::vector<int> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return members[static_cast<size_t>(a)] < members[static_cast<size_t>(b)]; });
  return order;
}

}  // namespace

Handle carry_reduce(const Route& route, const AxisGroups& groups, ReduceScatter last, const SumsOnWay& sums) {
  SHOAL_CHECK(!route.empty() && route.size() <= 2, "a reduction of {} hops", route.size());
  if (route.size() == 2) {
    const std::shared_ptr<Slab>& memory = sums.memory;
    SHOAL_CHECK(memory != nullptr && memory->nbytes() >= sums_nbytes(route), "no memory for sums on their way");
    const Hop& hop = route[0];
    ReduceScatter step;
    step.subject = last.subject;
    step.whole = last.whole;
    step.whole_dtype = hop.wire.dtype;
    step.shard = memory->data();
    step.shard_dtype = DType::f32;
    step.shard_numel = hop.part_numel;
    step.piece_numel = last.piece_numel;
    step.keep = memory;
    if (route[1].is_quantized()) {
      SHOAL_CHECK(sums.queue != nullptr, "no queue for blocks");
      step.after = [sums, numel = hop.part_numel, bits = route[1].wire.bits] { quantize_sums(sums, numel, bits); };
    }
    groups.along(hop.axis).reduce_scatter(std::move(step));
    last.whole = memory->data();
    last.groups = {};  // each sum is that of a group
  }
  const Hop& hop = route.back();
  Group& group = groups.along(hop.axis);
  last.whole_dtype = hop.wire.dtype;
  last.shard_numel = hop.part_numel;
  if (hop.is_quantized()) return exchange_quantized(hop, group, std::move(last), sums);
  if (hop.axis == kWorld) last.order = fold_order(group);
  return group.reduce_scatter(std::move(last));
}

}  // namespace shoal
