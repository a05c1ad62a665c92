#include "optim/lamb_passes.h"

#include <gtest/gtest.h>

#include "device/host_queue.h"
#include "unit/comm/rank_threads.h"
#include "unit/shard/model_parts.h"

namespace shoal {
namespace {

// Without memory and eps every element's update is the sign of its gradient, so the ratio of a parameter whose weights
// are all alike is that weight: half of it is left with a rate of one half.
TEST(LambPasses, EachParameterHasTheRatioOfItsOwnNormsOverAllRanks) {
  const UnitSpec spec = testing::unit_spec(0, {3, 130});
  for (const int world : {1, 2}) {
    const ModelLayout layout = lay_out({spec}, {.mesh = world, .persistence_threshold = 0});
    const FlatLayout& flat = layout.units[0].flats[0];
    testing::run_ranks(world, [&](Group& group) {
      const std::unique_ptr<Queue> queue = make_host_queue();
      LambPasses passes(layout, 1, {{0, 0}}, group, *queue, std::make_shared<Ledger>());
      const Cut own = Cuts(layout.mesh, group.rank(), 1).states(flat);
      const auto numel = static_cast<size_t>(own.numel());
      std::vector<float> weights(numel, 7), grads(numel, -2), first(numel), second(numel);
      std::vector<LambPasses::Run> runs;
      for (const ParamRun& run : runs_in(flat, own.begin, own.end)) {
        const int64_t at = run.flat_offset - own.begin;
        std::fill_n(weights.begin() + at, run.numel, run.param == 0 ? 4.0f : 6.0f);
        kernels::Segment segment;
        segment.numel = run.numel;
        segment.weight = weights.data() + at;
        segment.grad = grads.data() + at;
        segment.first = first.data() + at;
        segment.second = second.data() + at;
        runs.push_back({segment, 0, run.param, run.param_offset});
      }
      EXPECT_FALSE(passes.knows(0));
      passes.list(0, runs);
      EXPECT_TRUE(passes.knows(0));
      const kernels::LambStep step{.lr = 0.5f, .beta1 = 0, .beta2 = 0, .eps = 0};
      passes.update(0, {&step});
      for (const ParamRun& run : runs_in(flat, own.begin, own.end)) {
        const auto at = static_cast<size_t>(run.flat_offset - own.begin);
        for (size_t i = at; i < at + static_cast<size_t>(run.numel); ++i) {
          ASSERT_FLOAT_EQ(weights[i], run.param == 0 ? 6.0f : 9.0f) << "up, since gradients are below zero";
          ASSERT_EQ(first[i], -2);
          ASSERT_EQ(second[i], 4);
        }
      }
      if (group.rank() == 0) {
        EXPECT_EQ(weights[3], 7) << "padding is nobody's";
      }
      passes.forget();
      EXPECT_FALSE(passes.knows(0));
    });
  }
}

}  // namespace
}  // namespace shoal
