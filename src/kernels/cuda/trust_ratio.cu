// See trust_ratio.h.
#include "kernels/cuda/trust_ratio.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/trust_ratio_body.h"

namespace shoal::kernels::cuda {
namespace {

constexpr int kThreads = 64;

__global__ void __launch_bounds__(kThreads) ratio_kernel(const TrustRatios args) {
  const int64_t param = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (param < args.count) set_ratio(args, param);
}

}  // namespace

void trust_ratios(const TrustRatios& args, Stream stream) {
  SHOAL_CHECK_GE(args.count, 0);
  if (args.count == 0) return;
  const auto grid = static_cast<unsigned>((args.count + kThreads - 1) / kThreads);
  ratio_kernel<<<grid, kThreads, 0, stream_of(stream)>>>(args);
  check_launch("trust_ratios");
}

}  // namespace shoal::kernels::cuda
