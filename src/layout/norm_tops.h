// Which sums of squares travel for the gradient norm, and where each stands: see [Note: the tree of sums] in
// sum_tree.h. Pure. Whoever makes, gathers, merges or counts them asks here.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/sum_tree.h"

namespace shoal {

// A flat of so many runs a part, cut into so many parts, of which each is summed by one rank.
int64_t most_tops(int64_t part_runs, int parts);

struct NormTops {
  std::vector<FlatTops> flats;    // the trainable ones, in the order of units and flats
  int64_t places = 0;             // of all of them, on one rank
  std::vector<int> rank_of_part;  // who sums part number p of a flat
};
NormTops norm_tops(const ModelLayout& layout);

}  // namespace shoal
