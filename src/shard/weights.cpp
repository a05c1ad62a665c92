// See weights.h.
#include "shard/weights.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/group/full_group.h"
#include "plan/memory.h"
#include "schedule/route.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// Which gathers of a unit are watched for writes: a first forward and backward, since a model that writes its weights
// mostly does so in every pass; later, for those that begin late, now a forward and now a backward.
bool is_watched(int gather, int unit) {
  constexpr int kFirst = 2;
  constexpr int kEvery = 5;  // odd, or it would always be the same of the two
  return gather < kFirst || (gather + unit) % kEvery == 0;
}

// Along which axes weights travel.
std::set<std::string_view> axes_of_weights(const ModelLayout& layout, const Stage& stage) {
  return axes_of(layout, [&](const FlatLayout& flat) {
    FlatRoutes routes = routes_of(flat, {.stage = stage}, layout.mesh);
    return std::vector<Route>{routes.gather, routes.publish};
  });
}

size_t nbytes(const Cut& cut, DType dtype) { return static_cast<size_t>(cut.numel()) * nbytes_of(dtype); }

}  // namespace

Weights::Weights(const ModelLayout& layout, const ShardOptions& shards, std::unique_ptr<ScratchFile> file,
                 Group& channel, Queue& queue, Queue& gathered, const std::shared_ptr<Ledger>& ledger)
    : layout_(layout),
      cuts_(layout.mesh, channel.rank(), shards.stage),
      groups_(channel, layout.mesh, axes_of_weights(layout, shards.stage)),
      queue_(queue),
      gathered_(gathered) {
  const std::vector<UnitShards> placed = place_shards(layout_, shards);
  size_t whole_nbytes = 0, all_second_nbytes = 0;
  std::vector<size_t> arena_ranges;
  for (const UnitLayout& unit_layout : layout_.units) {
    Unit unit;
    const Tier tier = placed[units_.size()].tier;
    const bool moved = moves_shards(tier, queue.device() >= 0);
    unit.off_device = tier != Tier::device && queue.device() >= 0;
    unit.on_disk = tier == Tier::disk;
    off_device_ = off_device_ || unit.off_device;
    size_t arena_offset = 0;
    size_t shard_nbytes = 0;
    for (const FlatLayout& flat_layout : unit_layout.flats) {
      Flat flat;
      const Cut cut = cuts_.weights(flat_layout);
      flat.sharded = cut.is_part();
      SHOAL_CHECK(!flat.sharded || !flat_layout.trainable || cuts_.states(flat_layout).begin == cut.begin,
                  "unit {} is updated where its weights do not lie", unit_layout.name);
      size_t& offset = flat.sharded ? shard_nbytes : whole_nbytes;
      flat.offset = offset;
      offset += nbytes(cut, flat_layout.dtype);
      flat.second_offset = all_second_nbytes;
      flat.has_second = keeps_second(flat_layout, shards);
      flat.wire = weight_wire(flat_layout, shards);
      unit.has_second |= flat.has_second;
      all_second_nbytes += second_nbytes(flat_layout, shards);
      flat.alone = is_alone(flat_layout, cuts_.stage()) && !moved;
      if (flat.sharded && !flat.alone) {
        flat.arena_offset = arena_offset;
        arena_offset += static_cast<size_t>(flat_layout.numel) * nbytes_of(flat_layout.dtype);
      }
      unit.flats.push_back(flat);
    }
    arena_ranges.push_back(gathered_nbytes(unit_layout, cuts_.stage(), moved));
    units_.push_back(std::move(unit));
  }
  wholes_ = full(groups_.channel()).allocate(whole_nbytes, ledger, MemoryKind::weights);
  if (all_second_nbytes > 0) {
    second_ = full(groups_.channel()).allocate(all_second_nbytes, ledger, MemoryKind::second_weights);
  }
  home_ = make_shard_home(placed, shards.buffers, std::move(file), groups_.channel(), queue, ledger);
  if (whole_nbytes == 0) wholes_ = home_->slab();  // what has no elements still has an address
  arena_ = queue.make_arena(std::move(arena_ranges), ledger);
}

void Weights::take_params(int unit_index, std::vector<ParamSlot> params) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  unit.params = std::move(params);
  for (int flat = 0; flat < static_cast<int>(unit.flats.size()); ++flat) {
    if (!unit.flats[static_cast<size_t>(flat)].sharded) attach_flat(unit_index, flat, whole(unit_index, flat), wholes_);
  }
}

std::byte* Weights::shard(int unit, int flat) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const Flat& place = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  if (place.sharded) return home_->address(unit) + place.offset;
  const Cut updated = cuts_.states(layout);
  const Cut part = updated.is_part() ? updated : cuts_.own(layout);
  return wholes_->data() + place.offset + static_cast<size_t>(part.begin) * nbytes_of(layout.dtype);
}

// What the disk is given must be there; what stays in memory is only read by the queue's later work.
void Weights::put(int unit, Queue& queue, std::byte* place, const std::byte* from, size_t nbytes) {
  if (is_on_disk(unit)) {
    queue.download(place, from, nbytes);
  } else {
    queue.copy(place, from, nbytes);
  }
}

std::byte* Weights::whole(int unit, int flat) const {
  const Flat& place = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  return place.sharded ? nullptr : wholes_->data() + place.offset;
}

void Weights::gather(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  if (unit.held) return;
  SHOAL_CHECK(!unit.gathered, "unit {} is gathered already", layout.name);
  check_second_copy(unit_index);
  if (gather_reads(unit_index)) home_->fetch(unit_index);  // may fail
  unit.gathered = true;
  unit.memory = arena_->take(unit_index);
  for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
    if (!unit.flats[flat].sharded || unit.flats[flat].alone) continue;
    unit.gathers.push_back(
        gather_flat(unit_index, static_cast<int>(flat), "gather", unit.memory + unit.flats[flat].arena_offset, true));
    home_->lend(unit_index, unit.gathers.back());
  }
  if (!unit.has_second || !trains_ || unit.second_filled) return;
  unit.second_filled = true;
  unit.changed = false;
}

void Weights::finish_gather(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  if (!unit.gathered || unit.attached) return;
  for (const Handle& gather : unit.gathers) gather.wait();
  unit.gathers.clear();
  for (int flat = 0; flat < static_cast<int>(unit.flats.size()); ++flat) {
    const Flat& place = unit.flats[static_cast<size_t>(flat)];
    if (!place.sharded) continue;
    attach_flat(unit_index, flat, place.alone ? shard(unit_index, flat) : unit.memory + place.arena_offset, nullptr);
  }
  unit.attached = true;
  if (is_watched(unit.gather_counts[trains_ ? 1 : 0]++, unit_index)) watch(unit_index);
}

void Weights::watch(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
    if (!unit.flats[flat].sharded || unit.flats[flat].alone) continue;
    for (const Piece& piece : layout_.units[static_cast<size_t>(unit_index)].flats[flat].pieces) {
      unit.params[static_cast<size_t>(piece.param)].watch();
    }
  }
}

void Weights::release(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  if (!unit.gathered) return;
  for (const Handle& gather : unit.gathers) gather.wait();
  unit.gathers.clear();
  if (unit.attached) {
    const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
    for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
      if (!unit.flats[flat].sharded) continue;
      for (const Piece& piece : layout.flats[flat].pieces) unit.params[static_cast<size_t>(piece.param)].release();
    }
  }
  unit.attached = false;
  unit.gathered = false;
  arena_->give(unit_index);
}

const std::string* Weights::written_in_vain(int unit_index) const {
  const Unit& unit = units_[static_cast<size_t>(unit_index)];
  if (!unit.attached) return nullptr;
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
    if (!unit.flats[flat].sharded || unit.flats[flat].alone) continue;
    for (const Piece& piece : layout.flats[flat].pieces) {
      const ParamSlot& param = unit.params[static_cast<size_t>(piece.param)];
      if (param.was_written()) return &param.name();
    }
  }
  return nullptr;
}

void Weights::check_unchanged() const {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) check_unchanged(unit);
}

void Weights::check_unchanged(int unit) const {
  for (const ParamSlot& param : units_[static_cast<size_t>(unit)].params) param.check_unchanged();
}

bool Weights::gather_reads(int unit_index) const {
  const Unit& unit = units_[static_cast<size_t>(unit_index)];
  return std::any_of(unit.flats.begin(), unit.flats.end(),
                     [](const Flat& flat) { return flat.sharded && !flat.alone; });
}

bool Weights::is_published(int unit, int flat) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  return layout.trainable && !is_sharded(unit, flat) && cuts_.states(layout).is_part();
}

bool Weights::publishes() const {
  if (layout_.mesh.world() == 1) return false;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    for (int flat = 0; flat < static_cast<int>(units_[static_cast<size_t>(unit)].flats.size()); ++flat) {
      if (is_published(unit, flat)) return true;
    }
  }
  return false;
}

void Weights::empty_second_copy(int unit) { units_[static_cast<size_t>(unit)].second_filled = false; }

void Weights::empty_second_copies() {
  for (Unit& unit : units_) unit.second_filled = false;
}

void Weights::publish(int unit_index) {
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  if (changes_shards(layout, cuts_.stage())) empty_second_copy(unit_index);
  for (int flat = 0; flat < static_cast<int>(layout.flats.size()); ++flat) {
    const FlatLayout& flat_layout = layout.flats[static_cast<size_t>(flat)];
    if (!is_published(unit_index, flat)) continue;
    const Route route = routes_of(flat_layout, {.stage = cuts_.stage()}, cuts_.mesh()).publish;
    publishes_.push_back(carry_gather(route, groups_, cuts_, flat_layout,
                                      {.subject = {"publish", layout.name},
                                       .shard = shard(unit_index, flat),
                                       .whole = whole(unit_index, flat),
                                       .keep = wholes_}));
  }
}

void Weights::finish_publish() {
  for (const Handle& publish : publishes_) publish.wait();
  publishes_.clear();
}

void Weights::quantize(int unit_index, int flat, std::byte* blocks, std::byte* room) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit_index)].flats[static_cast<size_t>(flat)];
  const Wire wire = units_[static_cast<size_t>(unit_index)].flats[static_cast<size_t>(flat)].wire;
  const Cut own = cuts_.weights(layout);
  const std::byte* part = shard(unit_index, flat);
  if (is_off_device(unit_index)) {
    queue_.copy(room, part, nbytes(own, layout.dtype));
    part = room;
  }
  queue_.quantize(part, wire.dtype, own.numel(), wire.bits, blocks);
}

// See [Note: weights in blocks] and [Note: the second copy].
Handle Weights::gather_flat(int unit_index, int flat, const char* what, std::byte* to, bool for_use) {
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  const FlatLayout& flat_layout = layout.flats[static_cast<size_t>(flat)];
  const Unit& unit = units_[static_cast<size_t>(unit_index)];
  const Flat& place = unit.flats[static_cast<size_t>(flat)];
  const Wire elements{flat_layout.dtype}, wire = for_use ? place.wire : elements;
  std::byte* const end = to + (elements.nbytes(flat_layout.numel) - wire.nbytes(flat_layout.numel));
  const auto gather_from = [&](Over from, Over yields, const std::byte* part, std::byte* into,
                               const std::shared_ptr<const void>& keep) {
    AllGather args{.subject = {what, layout.name}, .shard = part, .whole = into, .keep = keep};
    if (wire.is_blocks() && yields == Over::nobody) {
      args.after = [queue = &gathered_, end, to, wire, numel = flat_layout.numel] {
        queue->dequantize(end, wire.bits, to, wire.dtype, numel);
      };
    }
    return carry_gather(gather_route(flat_layout, from, yields, cuts_.mesh(), wire), groups_, cuts_, flat_layout,
                        std::move(args));
  };
  const Cut own = cuts_.weights(flat_layout);
  const std::byte* part = shard(unit_index, flat);
  std::shared_ptr<const void> keep = home_;
  std::byte* const second = second_ ? second_->data() + place.second_offset : nullptr;
  const bool is_copied = place.has_second && unit.second_filled && wire == place.wire;
  if (wire.is_blocks() && !is_copied) {
    const int64_t begin = place.has_second ? cuts_.over(flat_layout, Over::shard).begin : own.begin;
    std::byte* const blocks = second + wire.nbytes(own.begin - begin);
    quantize(unit_index, flat, blocks, to);
    part = blocks;
    keep = second_;
  }
  const bool fills = for_use && trains_ && place.has_second;
  if (!fills && !is_copied) return gather_from(own.over, Over::nobody, part, end, keep);
  if (!is_copied) gather_from(own.over, Over::shard, part, second, keep);
  return gather_from(Over::shard, Over::nobody, second, end, second_);
}

void Weights::check_second_copy(int unit_index) const {
  const Unit& unit = units_[static_cast<size_t>(unit_index)];
  if (!unit.second_filled || !unit.changed) return;
  throw Error("unit " + layout_.units[static_cast<size_t>(unit_index)].name,
              "its weights were written, and not every rank was told. End the writes with finish_edits or "
              "finish_restore on every rank.");
}

void Weights::gather_into(int unit_index, int flat, std::byte* destination) {
  check_second_copy(unit_index);
  home_->fetch(unit_index);
  const Handle gather = gather_flat(unit_index, flat, "gather for the user", destination, /*for_use=*/false);
  home_->lend(unit_index, gather);
  gather.wait();
}

void Weights::leave() {
  home_->leave();
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    const UnitLayout& layout = layout_.units[static_cast<size_t>(unit)];
    for (int flat = 0; flat < static_cast<int>(layout.flats.size()); ++flat) {
      if (!is_sharded(unit, flat)) continue;
      for (const Piece& piece : layout.flats[static_cast<size_t>(flat)].pieces) {
        ShardRecord record;
        record.home = home_;
        record.unit = unit;
        record.offset = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].offset;
        record.flat = layout.flats[static_cast<size_t>(flat)];
        record.piece = piece;
        record.mesh = layout_.mesh;
        record.over = cuts_.weights(record.flat).over;
        params(unit)[static_cast<size_t>(piece.param)].leave(std::move(record));
      }
    }
  }
}

void Weights::attach_flat(int unit_index, int flat, std::byte* data, const std::shared_ptr<Slab>& owner) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit_index)].flats[static_cast<size_t>(flat)];
  for (const Piece& piece : layout.pieces) {
    unit.params[static_cast<size_t>(piece.param)].attach(
        data + static_cast<size_t>(piece.offset) * nbytes_of(layout.dtype), owner);
  }
}

}  // namespace shoal
