// Which sums of squares of each parameter travel for LAMB, and where each stands: the tree of layout/sum_tree.h,
// counted from the parameter's begin. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/cut.h"
#include "layout/sum_tree.h"

namespace shoal {

// The runs [begin, end) of a parameter on one rank.
struct ParamPart {
  int rank = 0;
  int64_t begin = 0, end = 0;
};

struct ParamTops {
  int flat = 0;
  int param = 0;
  int64_t numel = 0;
  int64_t offset = 0;            // first place; that many are for the weight, and as many after them for the update
  int64_t places = 0;            // as many as the part with the most tops needs
  std::vector<ParamPart> parts;  // that have runs of it, in order
};

struct UnitTops {
  std::vector<ParamTops> params;  // the trainable ones, in the order of flats
  int64_t places = 0;             // of all of them, on one rank
};
UnitTops param_tops(const UnitLayout& unit, const Stage& stage, const Mesh& mesh);

}  // namespace shoal
