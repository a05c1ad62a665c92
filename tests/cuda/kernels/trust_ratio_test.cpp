// The trust ratios on a GPU equal the host's to the bit.
#include "kernels/cuda/trust_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cuda/gpu.h"

namespace shoal::kernels {
namespace {

class CudaTrustRatio : public OnGpu {};

TEST_F(CudaTrustRatio, EqualsTheHostForManyParametersInParts) {
  std::mt19937_64 random(3);
  std::vector<TopRange> ranges;
  std::vector<TrustParam> params;
  int64_t places = 0;
  for (int param = 0; param < 300; ++param) {
    const int parts = 1 + param % 4;
    params.push_back({static_cast<int64_t>(ranges.size()), parts, param % 2});
    int64_t end = 0;
    for (int part = 0; part < parts; ++part) {
      const int64_t begin = end;
      end += static_cast<int64_t>(1 + random() % 5000);
      const int64_t count = top_count(begin, end);
      ranges.push_back({end, places, places + count});
      places += 2 * count;
    }
  }
  std::vector<double> tops(static_cast<size_t>(places));
  for (double& top : tops) {
    top = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 40) - 70);
  }
  const std::vector<LambStep> groups = {{.lr = 1}, {.lr = 2, .max_coeff = 1.1f, .min_coeff = 0.9f}};
  std::vector<LambStep> expected(params.size());
  trust_ratios({tops.data(), ranges.data(), params.data(), 300, groups.data(), expected.data()});
  auto* steps = static_cast<LambStep*>(take(expected.size() * sizeof(LambStep)));
  cuda::trust_ratios({take_copy(tops), take_copy(ranges), take_copy(params), 300, take_copy(groups), steps}, nullptr);
  const std::vector<LambStep> found = read(steps, expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].fields(), expected[i].fields()) << i;
  cuda::trust_ratios({}, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
}  // namespace shoal::kernels
