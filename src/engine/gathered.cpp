// See gathered.h.
#include "engine/gathered.h"

#include <map>

namespace shoal {

namespace {

struct GatheredFlat {
  std::shared_ptr<Slab> memory;  // null where the flat is whole anyway
  std::byte* whole = nullptr;
  std::vector<Piece> pieces;  // those asked for
};

using GatheredFlats = std::map<std::pair<int, int>, GatheredFlat>;  // by unit and flat: the same order on every rank

GatheredFlats find_flats(const GatherParts& parts, const std::vector<ParamAddress>& params) {
  GatheredFlats flats;
  for (const ParamAddress& address : params) {
    const UnitLayout& unit = parts.layout.units[static_cast<size_t>(address.unit)];
    for (int flat = 0; flat < static_cast<int>(unit.flats.size()); ++flat) {
      for (const Piece& piece : unit.flats[static_cast<size_t>(flat)].pieces) {
        if (piece.param == address.param) flats[{address.unit, flat}].pieces.push_back(piece);
      }
    }
  }
  return flats;
}

void attach(const GatherParts& parts, GatheredFlats& flats) {
  for (auto& [place, gathered] : flats) {
    const auto [unit, flat] = place;
    const FlatLayout& layout = parts.layout.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
    gathered.whole = parts.weights.whole(unit, flat);
    if (gathered.whole != nullptr) continue;
    const size_t element = nbytes_of(layout.dtype);
    gathered.memory =
        parts.queue.allocate(static_cast<size_t>(layout.numel) * element, parts.ledger, MemoryKind::user_gather);
    gathered.whole = gathered.memory->data();
    parts.weights.gather_into(unit, flat, gathered.whole);
    for (const Piece& piece : gathered.pieces) {
      parts.weights.params(unit)[static_cast<size_t>(piece.param)].attach(gathered.whole +
                                                                          static_cast<size_t>(piece.offset) * element);
    }
  }
}

void release(const GatherParts& parts, const GatheredFlats& flats) {
  for (const auto& [place, gathered] : flats) {
    if (!gathered.memory) continue;
    for (const Piece& piece : gathered.pieces) {
      parts.weights.params(place.first)[static_cast<size_t>(piece.param)].release();
    }
  }
}

void take_what_rank_0_wrote(const GatherParts& parts, const GatheredFlats& flats) {
  for (const auto& [place, gathered] : flats) {
    const auto [unit, flat] = place;
    const UnitLayout& unit_layout = parts.layout.units[static_cast<size_t>(unit)];
    const FlatLayout& layout = unit_layout.flats[static_cast<size_t>(flat)];
    for (const Piece& piece : gathered.pieces) {
      parts.channel
          .broadcast({.subject = {"take written values", unit_layout.name},
                      .data = gathered.whole + static_cast<size_t>(piece.offset) * nbytes_of(layout.dtype),
                      .nbytes = static_cast<size_t>(piece.numel) * nbytes_of(layout.dtype),
                      .root = 0,
                      .keep = gathered.memory})
          .wait();
      parts.updater.reset_param(unit, flat, piece, gathered.whole, parts.weights);
    }
  }
}

}  // namespace

void with_gathered(const GatherParts& parts, const std::vector<ParamAddress>& params, Access access,
                   const std::function<void()>& use) {
  GatheredFlats flats = find_flats(parts, params);
  attach(parts, flats);
  try {
    use();
  } catch (...) {
    release(parts, flats);
    throw;
  }
  if (access == Access::write) take_what_rank_0_wrote(parts, flats);
  release(parts, flats);
}

}  // namespace shoal
