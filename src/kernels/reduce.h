// Sums whose order is part of the contract: the fold of leaves, and the sum of squares for the gradient norm.
#pragma once

#include <cstdint>

#include "layout/sum_tree.h"
#include "shoal/dtype.h"

namespace shoal::kernels {

// The left fold: sum = carry * out[i] + src[0][i] + src[1][i] + ..., in fp32, in the order given; with carry 0 the
// first source is stored and what stands in `out` is not read. Then out[i] = post * sum, rounded once to `rounding`
// (which is out_dtype, or any where out_dtype is f32). A fold that goes on in a later call, with carry 1, is the fold
// of one call. `out` may be the same memory as one of the sources.
struct OrderedFold {
  const void* const* sources = nullptr;
  int source_count = 0;
  DType source_dtype = DType::f32;
  void* out = nullptr;
  DType out_dtype = DType::f32;
  DType rounding = DType::f32;
  int64_t numel = 0;
  float carry = 0.0f;
  float post = 1.0f;

  // Groups: sources are folded by `group` (0: all are one), and the sums of groups in their order. `before` sources of
  // the first group came in earlier calls: their sum is in `open`, which also takes the sum of a group that is not full
  // at the end of the call, unless `closes`. carry is 0 until there is a sum; where there is none yet and no group is
  // closed, `out` is left as it is.
  int64_t group = 0;
  int64_t before = 0;
  float* open = nullptr;  // may be null where no group is open at an end of the call
  bool closes = true;
};
// Throws unless the arguments fit together.
void check(const OrderedFold& args);
void ordered_fold(const OrderedFold& args);

// Elements of a block: the largest node of the tree of sums that a kernel writes.
inline constexpr int64_t kNormBlock = kBlockRuns * kRunNumel;

// The pieces of the values, which begin at run number `first_run` of what is summed: piece_count(first_run, first_run +
// runs_of(numel)) sums of squares, by [Note: the tree of sums] in layout/sum_tree.h. A run is summed in fp64 in eight
// lanes: lane j adds the squares of elements j, j+8, ... in order, and the lanes are added by halves:
// ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)). What a last run lacks counts as zero.
void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces);

// The pieces of the runs [begin, end), and the memory for their tops.
struct PieceSums {
  const double* pieces = nullptr;
  int64_t begin = 0, end = 0;
  double* tops = nullptr;
};
void sum_pieces(const PieceSums& range);

}  // namespace shoal::kernels
