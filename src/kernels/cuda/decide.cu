// See decide.h.
#include "kernels/cuda/decide.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/decide_body.h"

namespace shoal::kernels::cuda {
namespace {

// One block. One thread adds and decides, since the order leaves no choice; the others bring the sums, one tile ahead
// of it, and copy the groups' constants.
constexpr int kThreads = 256;
constexpr int kTile = 1024;

template <class Step>
__global__ void __launch_bounds__(kThreads) decide_kernel(Decision decision, StepChoice<Step> choice) {
  __shared__ double tiles[2][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t count = decision.ranks * decision.flats;
  const auto bring = [&](int64_t begin, double* tile) {
    for (int k = thread; k < kTile && begin + k < count; k += kThreads) tile[k] = decision.square_sums[begin + k];
  };
  double sum = 0;
  bring(0, tiles[0]);
  int current = 0;
  for (int64_t begin = 0; begin < count; begin += kTile, current ^= 1) {
    __syncthreads();  // the adding thread waits for its tile, the others until the tile before is read
    bring(begin + kTile, tiles[current ^ 1]);
    if (thread == 0) {
      const int64_t left = count - begin < kTile ? count - begin : kTile;
      for (int k = 0; k < static_cast<int>(left); ++k) sum = __dadd_rn(sum, tiles[current][k]);
    }
  }
  if (thread == 0) decide_by(sum, decision);
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
