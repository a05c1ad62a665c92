// See norm_tops.h.
#include "layout/norm_tops.h"

#include <algorithm>

#include "layout/cut.h"

namespace shoal {

static_assert(kAlignNumel % kRunNumel == 0, "every part of a flat is whole runs");

int64_t most_tops(int64_t part_runs, int parts) {
  int64_t most = 0;
  for (int part = 0; part < parts; ++part) {
    most = std::max(most, top_count(part * part_runs, (part + 1) * part_runs));
  }
  return most;
}

NormTops norm_tops(const ModelLayout& layout) {
  NormTops tops;
  const int world = layout.mesh.world();
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (!flat.trainable) continue;
      const int64_t part_runs = runs_of(flat.rank_numel);
      tops.flats.push_back({part_runs, tops.places, most_tops(part_runs, world)});
      tops.places += tops.flats.back().places;
    }
  }
  tops.rank_of_part = ranks_by_part(layout.mesh);
  return tops;
}

}  // namespace shoal
