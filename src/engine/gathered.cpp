// See gathered.h.
#include "engine/gathered.h"

#include <algorithm>

#include "shoal/error.h"

namespace shoal {

GatheredParams::GatheredParams(const GatherParts& parts, const std::vector<ParamAddress>& params) : parts_(parts) {
  find_flats(params);
  try {
    attach();
    hold_units();
  } catch (...) {  // what is attached already must not outlive its memory
    release();
    throw;
  }
}

GatheredParams::~GatheredParams() { release(); }

void GatheredParams::release() {
  for (const int unit : held_) parts_.weights.set_held(unit, false);
  held_.clear();
  for (const auto& [place, flat] : flats_) {
    if (!flat.attached) continue;
    for (const Piece& piece : flat.pieces) {
      parts_.weights.params(place.first)[static_cast<size_t>(piece.param)].release();
    }
  }
}

void GatheredParams::find_flats(const std::vector<ParamAddress>& params) {
  for (const ParamAddress& address : params) {
    const UnitLayout& unit = parts_.layout.units[static_cast<size_t>(address.unit)];
    for (int flat = 0; flat < static_cast<int>(unit.flats.size()); ++flat) {
      for (const Piece& piece : unit.flats[static_cast<size_t>(flat)].pieces) {
        if (piece.param == address.param) flats_[{address.unit, flat}].pieces.push_back(piece);
      }
    }
  }
}

void GatheredParams::attach() {
  for (auto& [place, gathered] : flats_) {
    const auto [unit, flat] = place;
    const FlatLayout& layout = parts_.layout.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
    gathered.whole = parts_.weights.whole(unit, flat);
    if (gathered.whole != nullptr || parts_.weights.in_pass(unit)) continue;
    const size_t element = nbytes_of(layout.dtype);
    gathered.memory =
        parts_.queue.allocate(static_cast<size_t>(layout.numel) * element, parts_.ledger, MemoryKind::user_gather);
    gathered.whole = gathered.memory->data();
    parts_.weights.gather_into(unit, flat, gathered.whole);
    gathered.attached = true;
    for (const Piece& piece : gathered.pieces) {
      parts_.weights.params(unit)[static_cast<size_t>(piece.param)].attach(
          gathered.whole + static_cast<size_t>(piece.offset) * element, gathered.memory);
    }
  }
}

void GatheredParams::hold_units() {
  for (int unit = 0; unit < static_cast<int>(parts_.layout.units.size()); ++unit) {
    const std::vector<FlatLayout>& flats = parts_.layout.units[static_cast<size_t>(unit)].flats;
    bool any = false;
    bool all = true;
    for (int flat = 0; flat < static_cast<int>(flats.size()); ++flat) {
      if (!parts_.weights.is_sharded(unit, flat)) continue;
      const auto found = flats_.find({unit, flat});
      const bool here = found != flats_.end() && found->second.memory;
      any |= here;
      all &= here && found->second.pieces.size() == flats[static_cast<size_t>(flat)].pieces.size();
    }
    if (!any) continue;
    (all ? held_ : partly_).push_back(unit);
    if (all) parts_.weights.set_held(unit, true);
  }
}

void GatheredParams::take_written(int root) {
  for (const auto& [place, gathered] : flats_) {
    const auto [unit, flat] = place;
    const UnitLayout& unit_layout = parts_.layout.units[static_cast<size_t>(unit)];
    const FlatLayout& layout = unit_layout.flats[static_cast<size_t>(flat)];
    if (gathered.whole == nullptr) {
      throw Error("unit " + unit_layout.name,
                  "is in use by a pass, so its parameters cannot be written. Write them "
                  "between passes.");
    }
    for (const Piece& piece : gathered.pieces) {
      parts_.channel
          .broadcast({.subject = {"take written values", unit_layout.name},
                      .data = gathered.whole + static_cast<size_t>(piece.offset) * nbytes_of(layout.dtype),
                      .nbytes = static_cast<size_t>(piece.numel) * nbytes_of(layout.dtype),
                      .root = root,
                      .keep = gathered.memory})
          .wait();
      parts_.states.reset_param(unit, flat, piece, gathered.whole, parts_.weights);
    }
    parts_.weights.empty_second_copy(unit);
  }
}

void with_gathered(const GatherParts& parts, const std::vector<ParamAddress>& params, Access access,
                   const std::function<void()>& use) {
  GatheredParams gathered(parts, params);
  use();
  if (access == Access::write) gathered.take_written(0);
}

}  // namespace shoal
