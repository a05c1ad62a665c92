// LAMB's second pass: from the sums of squares of each parameter's weights and update, on all ranks, to the constants
// with which the update is applied. One body (trust_ratio_body.h) serves the host and the GPU, so both give the same
// bits.
#pragma once

#include <cstdint>

#include "kernels/update_steps.h"
#include "layout/sum_tree.h"

namespace shoal::kernels {

// The runs of a parameter up to `end`, from where the range before ends, and where the first of their tops is.
struct TopRange {
  int64_t end = 0;
  int64_t weight = 0, update = 0;
};

struct TrustParam {
  int64_t first_range = 0, ranges = 0;  // which together are the whole parameter
  int64_t group = 0;
};

// All pointers are memory of where it is done.
struct TrustRatios {
  const double* tops = nullptr;  // of all ranks
  const TopRange* ranges = nullptr;
  const TrustParam* params = nullptr;
  int64_t count = 0;  // of parameters
  const LambStep* groups = nullptr;
  LambStep* steps = nullptr;  // one a parameter: its group's, to apply the update with the parameter's ratio
};
void trust_ratios(const TrustRatios& args);

}  // namespace shoal::kernels
