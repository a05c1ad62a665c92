// The body of kernels/trust_ratio.h, for the host and for a GPU: sums, quotients and square roots, each rounded once as
// IEEE says.
#pragma once

#include <cmath>

#include "kernels/trust_ratio.h"

namespace shoal::kernels {
namespace {

SHOAL_ON_BOTH inline double param_norm(const TrustRatios& args, const TrustParam& param, int64_t TopRange::*place) {
  SumStack stack(0);
  for (int64_t i = 0; i < param.ranges; ++i) {
    const TopRange& range = args.ranges[param.first_range + i];
    const double* top = args.tops + range.*place;
    while (stack.run() < range.end) stack.push(node_level(stack.run(), range.end, kMostLevel), *top++);
  }
  return std::sqrt(stack.root());
}

SHOAL_ON_BOTH inline void set_ratio(const TrustRatios& args, int64_t index) {
  const TrustParam param = args.params[index];
  LambStep step = args.groups[param.group];
  const double weight = param_norm(args, param, &TopRange::weight);
  const double update = param_norm(args, param, &TopRange::update);
  double ratio = 1;
  if (weight != 0 && update != 0) {
    ratio = weight / update;
    if (ratio < step.min_coeff) ratio = step.min_coeff;
    if (ratio > step.max_coeff) ratio = step.max_coeff;
  }
  step.ratio = static_cast<float>(ratio);
  step.applies = true;
  args.steps[index] = step;
}

}  // namespace
}  // namespace shoal::kernels
