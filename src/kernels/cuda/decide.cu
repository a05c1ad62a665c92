// See decide.h.
#include "kernels/cuda/decide.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/decide_body.h"

namespace shoal::kernels::cuda {
namespace {

// One block. Each thread sums up a flat of a tile; one thread adds the flats, since their order leaves no choice, and
// decides; all copy the groups' constants.
constexpr int kThreads = 256;

template <class Step>
__global__ void __launch_bounds__(kThreads) decide_kernel(Decision decision, StepChoice<Step> choice) {
  __shared__ double tile[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  FlatSums sums;
  for (int64_t begin = 0; begin < decision.flats; begin += kThreads) {
    if (begin + thread < decision.flats) tile[thread] = sum_of_flat(decision, begin + thread);
    __syncthreads();  // the adding thread waits for its tile
    if (thread == 0) {
      const int64_t left = decision.flats - begin < kThreads ? decision.flats - begin : kThreads;
      for (int k = 0; k < static_cast<int>(left); ++k) sums.add(begin + k, tile[k]);
    }
    __syncthreads();  // the others wait until the tile is read
  }
  if (thread == 0) decide_by(sums, decision);
  __syncthreads();  // the others wait for the record
  for (int64_t group = thread; group < choice.groups; group += kThreads) pick(choice, *decision.record, group);
}

template <class Step>
void launch(const Decision& decision, const StepChoice<Step>& choice, Stream stream) {
  SHOAL_CHECK_GE(choice.count, 1);
  decide_kernel<<<1, kThreads, 0, stream_of(stream)>>>(decision, choice);
  check_launch("decide");
}

}  // namespace

void decide(const Decision& decision, const AnyChoice& choice, Stream stream) {
  std::visit([&](const auto& of_groups) { launch(decision, of_groups, stream); }, choice);
}

}  // namespace shoal::kernels::cuda
