// See param_tops.h.
#include "layout/param_tops.h"

#include <algorithm>

namespace shoal {

UnitTops param_tops(const UnitLayout& unit, const Stage& stage, const Mesh& mesh) {
  UnitTops tops;
  for (size_t index = 0; index < unit.flats.size(); ++index) {
    const FlatLayout& flat = unit.flats[index];
    if (!flat.trainable) continue;
    // The first rank that has each part, in the order of parts.
    std::vector<std::pair<int, Cut>> holders;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const Cut part = Cuts(mesh, rank, stage).states(flat);
      holders.resize(static_cast<size_t>(part.parts), {-1, {}});
      auto& holder = holders[static_cast<size_t>(part.index)];
      if (holder.first < 0) holder = {rank, part};
    }
    for (const Piece& piece : flat.pieces) {
      ParamTops param;
      param.flat = static_cast<int>(index);
      param.param = piece.param;
      param.numel = piece.numel;
      param.offset = tops.places;
      const int64_t last = piece.offset + runs_of(piece.numel) * kRunNumel;
      for (const auto& [rank, part] : holders) {
        const int64_t begin = std::max(part.begin, piece.offset), end = std::min(part.end, last);
        if (begin >= end) continue;
        param.parts.push_back({rank, (begin - piece.offset) / kRunNumel, (end - piece.offset) / kRunNumel});
        param.places = std::max(param.places, top_count(param.parts.back().begin, param.parts.back().end));
      }
      tops.places += 2 * param.places;
      tops.params.push_back(std::move(param));
    }
  }
  return tops;
}

}  // namespace shoal
