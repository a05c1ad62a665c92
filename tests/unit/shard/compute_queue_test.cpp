#include "shard/compute_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

TEST(ComputeQueue, OnTheCpuWorksInHostMemoryOnTorchsThreads) {
  const std::unique_ptr<Queue> queue = make_compute_queue(at::kCPU);
  EXPECT_EQ(queue->device(), -1);
  constexpr int64_t kNumel = 100'003;  // several spans
  const std::vector<float> ones(kNumel, 1.0f);
  std::vector<float> sums(kNumel, 2.0f);
  queue->add(ones.data(), DType::f32, sums.data(), DType::f32, kNumel);
  EXPECT_EQ(sums, std::vector<float>(kNumel, 3.0f));
}

TEST(ComputeQueue, HasNoStreamInHostMemory) { EXPECT_EQ(current_stream(at::kCPU), nullptr); }

}  // namespace
}  // namespace shoal
