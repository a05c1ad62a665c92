// See lone_update.h.
#include "optim/lone_update.h"

#include <variant>

#include "base/check.h"
#include "kernels/segment.h"

namespace shoal {

namespace {

kernels::Segment segment_of(const LoneTensor& tensor) {
  kernels::Segment segment;
  segment.numel = tensor.numel;
  segment.weight = tensor.weight;
  segment.weight_dtype = tensor.weight_dtype;
  segment.master_kind = kernels::master_of(tensor.weight_dtype, /*narrow=*/true);
  segment.grad = tensor.grad;
  segment.grad_dtype = tensor.grad_dtype;
  segment.first = tensor.first;
  segment.second = tensor.second;
  segment.state_dtype = tensor.state_dtype;
  return segment;
}

}  // namespace

void update_alone(const LoneTensor& tensor, const GroupSteps& steps, const ParallelFor& parallel_for) {
  std::visit(
      [&](const auto& of_groups) {
        SHOAL_CHECK_EQ(of_groups.size(), 1u);
        const kernels::Segment segment = segment_of(tensor);
        kernels::check_segment(segment);
        parallel_for(tensor.numel, [&](int64_t begin, int64_t end) {
          kernels::update(kernels::part_of(segment, begin, end), of_groups[0]);
        });
      },
      steps);
}

}  // namespace shoal
