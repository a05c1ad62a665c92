#include "device/host_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <vector>

namespace shoal {
namespace {

// Three spans, the last one shorter.
void in_three_spans(int64_t numel, const std::function<void(int64_t, int64_t)>& work) {
  const int64_t third = (numel + 2) / 3;
  for (int64_t begin = 0; begin < numel; begin += third) work(begin, std::min(numel, begin + third));
}

TEST(HostQueue, AnUpdateInSpansHasTheBitsOfOneInOneSpan) {
  constexpr int64_t kNumel = 1000;
  const auto updated = [&](ParallelFor parallel_for) {
    std::vector<float> weight(kNumel, 1.0f), grad(kNumel), first(kNumel, 0.0f), second(kNumel, 0.0f);
    for (int64_t i = 0; i < kNumel; ++i) grad[static_cast<size_t>(i)] = 0.001f * static_cast<float>(i % 37);
    const std::unique_ptr<Queue> queue = make_host_queue(std::move(parallel_for));
    kernels::Segment segment;
    segment.numel = kNumel;
    segment.weight = weight.data();
    segment.grad = grad.data();
    segment.first = first.data();
    segment.second = second.data();
    const auto list = queue->make_update_list({segment}, {1});
    kernels::AdamStep unused, step;
    unused.lr = 100;
    step.lr = 0.01f;
    const GroupSteps steps = std::vector<kernels::AdamStep>{unused, step};
    queue->update(*list, in_host_memory(steps));
    return weight;
  };
  EXPECT_EQ(updated(in_three_spans), updated(in_one_span));
}

TEST(HostQueue, AStepThatIsDecidedToBeSkippedUpdatesNothing) {
  const std::unique_ptr<Queue> queue = make_host_queue();
  float weight = 1, grad = 2;
  kernels::Segment segment;
  segment.numel = 1;
  segment.weight = &weight;
  segment.grad = &grad;
  const auto list = queue->make_update_list({segment}, {0});
  kernels::SgdStep step;
  step.lr = 0.5f;
  for (const double square : {std::numeric_limits<double>::infinity(), 4.0}) {
    kernels::StepProgress progress;
    kernels::StepRecord record;
    std::vector<std::byte> picked(kMostStepNbytes);
    const int rank_of_part = 0;
    const FlatTops flat_tops{1, 0, 1};
    const PlacedSteps placed =
        queue->decide({&square, 1, &rank_of_part, 1, &flat_tops, 1, {{}, 1.0}, &progress, &record},
                      {0, 1, std::vector<kernels::SgdStep>{step}}, picked.data());
    queue->update(*list, placed);
    EXPECT_FLOAT_EQ(weight, square == 4.0 ? 1 - 0.5f * 2 / 2 : 1);
    const std::unique_ptr<LateRead> reading = queue->make_late_read(sizeof(record));
    reading->begin(&record);
    EXPECT_TRUE(reading->ready());
    EXPECT_EQ(static_cast<const kernels::StepRecord*>(reading->wait())->applied, square == 4.0 ? 1 : 0);
  }
}

TEST(HostQueue, SumsPiecesToTheirTops) {
  const std::vector<double> pieces = {1, 2, 4, 8};  // run 31, blocks 1 and 2, and run 96
  std::vector<double> tops(5, -1);
  make_host_queue()->sum_pieces({{pieces.data(), 31, 97, tops.data()}, {pieces.data(), 64, 128, tops.data() + 4}});
  EXPECT_EQ(tops, (std::vector<double>{1, 2, 4, 8, 3})) << "blocks 1 and 2 are no siblings, 2 and 3 are";
}

TEST(HostQueue, CopiesBothWaysAndZeroes) {
  const std::unique_ptr<Queue> queue = make_host_queue();
  const auto slab = queue->allocate(8, std::make_shared<Ledger>(), MemoryKind::staging);
  const double sent = 2.5;
  double received = 0;
  queue->upload(slab->data(), &sent, 8);
  queue->download(&received, slab->data(), 8);
  EXPECT_EQ(received, 2.5);
  queue->zero(slab->data(), 8);
  queue->download(&received, slab->data(), 8);
  EXPECT_EQ(received, 0.0);
}

}  // namespace
}  // namespace shoal
