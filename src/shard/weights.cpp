// See weights.h.
#include "shard/weights.h"

#include <algorithm>

#include "base/check.h"
#include "plan/memory.h"

namespace shoal {

Weights::Weights(const ModelLayout& layout, int stage, Tier shards, Group& channel, Queue& queue,
                 const std::shared_ptr<Ledger>& ledger)
    : layout_(layout), stage_(stage), off_device_(shards != Tier::device && queue.device() >= 0), channel_(channel) {
  size_t whole_nbytes = 0;
  size_t shard_nbytes = 0;
  std::vector<size_t> arena_ranges;
  for (const UnitLayout& unit_layout : layout_.units) {
    Unit unit;
    size_t arena_offset = 0;
    for (const FlatLayout& flat_layout : unit_layout.flats) {
      Flat flat;
      flat.sharded = row_of(flat_layout, stage_).shard_weights;
      size_t& offset = flat.sharded ? shard_nbytes : whole_nbytes;
      flat.offset = offset;
      offset += static_cast<size_t>(weight_numel(flat_layout, stage_)) * nbytes_of(flat_layout.dtype);
      flat.alone = is_alone(flat_layout) && !off_device_;
      if (flat.sharded && !flat.alone) {
        flat.arena_offset = arena_offset;
        arena_offset += static_cast<size_t>(flat_layout.numel) * nbytes_of(flat_layout.dtype);
      }
      unit.flats.push_back(flat);
    }
    arena_ranges.push_back(gathered_nbytes(unit_layout, stage_, off_device_));
    units_.push_back(std::move(unit));
  }
  wholes_ = channel_.allocate(whole_nbytes, ledger, MemoryKind::weights);
  const MemoryKind kind = shards == Tier::device ? MemoryKind::weights : MemoryKind::host_weights;
  shards_ =
      off_device_ ? queue.allocate_host(shard_nbytes, ledger, kind) : channel_.allocate(shard_nbytes, ledger, kind);
  if (whole_nbytes == 0) wholes_ = shards_;  // what has no elements still has an address
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
  std::byte* data = slab_of(place)->data() + place.offset;
  if (place.sharded) return data;
  return data + static_cast<size_t>(channel_.rank() * layout.shard_numel) * nbytes_of(layout.dtype);
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
  unit.gathered = true;
  unit.memory = arena_->take(unit_index);
  for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
    if (!unit.flats[flat].sharded || unit.flats[flat].alone) continue;
    unit.gathers.push_back(channel_.all_gather(
        {.subject = {"gather", layout.name},
         .shard = shard(unit_index, static_cast<int>(flat)),
         .whole = unit.memory + unit.flats[flat].arena_offset,
         .shard_nbytes = static_cast<size_t>(layout.flats[flat].shard_numel) * nbytes_of(layout.flats[flat].dtype),
         .keep = shards_}));
  }
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

bool Weights::gather_reads(int unit_index) const {
  const Unit& unit = units_[static_cast<size_t>(unit_index)];
  return std::any_of(unit.flats.begin(), unit.flats.end(),
                     [](const Flat& flat) { return flat.sharded && !flat.alone; });
}

bool Weights::is_published(int unit, int flat) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  return layout.trainable && !is_sharded(unit, flat) && row_of(layout, stage_).shard_states;
}

bool Weights::publishes() const {
  if (layout_.world == 1) return false;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    for (int flat = 0; flat < static_cast<int>(units_[static_cast<size_t>(unit)].flats.size()); ++flat) {
      if (is_published(unit, flat)) return true;
    }
  }
  return false;
}

void Weights::publish(int unit_index) {
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  for (int flat = 0; flat < static_cast<int>(layout.flats.size()); ++flat) {
    const FlatLayout& flat_layout = layout.flats[static_cast<size_t>(flat)];
    if (!is_published(unit_index, flat)) continue;
    publishes_.push_back(channel_.all_gather(
        {.subject = {"publish", layout.name},
         .shard = shard(unit_index, flat),
         .whole = whole(unit_index, flat),
         .shard_nbytes = static_cast<size_t>(flat_layout.shard_numel) * nbytes_of(flat_layout.dtype),
         .keep = wholes_}));
  }
}

void Weights::finish_publish() {
  for (const Handle& publish : publishes_) publish.wait();
  publishes_.clear();
}

void Weights::gather_into(int unit_index, int flat, std::byte* destination) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit_index)].flats[static_cast<size_t>(flat)];
  channel_
      .all_gather({.subject = {"gather for the user", layout_.units[static_cast<size_t>(unit_index)].name},
                   .shard = shard(unit_index, flat),
                   .whole = destination,
                   .shard_nbytes = static_cast<size_t>(layout.shard_numel) * nbytes_of(layout.dtype),
                   .keep = shards_})
      .wait();
}

void Weights::leave() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    const UnitLayout& layout = layout_.units[static_cast<size_t>(unit)];
    for (int flat = 0; flat < static_cast<int>(layout.flats.size()); ++flat) {
      if (!is_sharded(unit, flat)) continue;
      for (const Piece& piece : layout.flats[static_cast<size_t>(flat)].pieces) {
        ShardRecord record;
        record.slab = shards_;
        record.shard = shard(unit, flat);
        record.flat = layout.flats[static_cast<size_t>(flat)];
        record.piece = piece;
        record.world = layout_.world;
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
