// The update of one tensor that no engine holds, in host memory: for optimizers in Python that step on their own.
//
// The kernels and constants are those of an engine's step. Weights and states of 16 bits are widened to fp32, updated
// there and rounded to nearest even, once a step; no master is kept beside them.
#pragma once

#include <cstdint>

#include "device/queue.h"
#include "optim/group_steps.h"
#include "shoal/dtype.h"

namespace shoal {

// Pointers to `numel` elements each, without overlap.
struct LoneTensor {
  int64_t numel = 0;
  void* weight = nullptr;
  DType weight_dtype = DType::f32;
  const void* grad = nullptr;
  DType grad_dtype = DType::f32;
  void* first = nullptr;  // as in kernels::Segment
  void* second = nullptr;
  DType state_dtype = DType::f32;
};

// `steps` are of one group.
void update_alone(const LoneTensor& tensor, const GroupSteps& steps, const ParallelFor& parallel_for);

}  // namespace shoal
