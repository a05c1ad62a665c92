#include "shoal/lone_shards.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::run_ranks;

at::Tensor counted(int rank) { return at::arange(300, at::kFloat).add(1000 * rank).set_requires_grad(true); }

TEST(LoneShards, AShardedParameterIsReleasedAndHoldsRankZerosValues) {
  for (int world = 1; world <= 3; ++world) {
    run_ranks(world, [](Group& group) {
      const at::Tensor param = counted(group.rank());
      shard_param(param, "w", DType::f32, group);
      EXPECT_TRUE(is_lone_shard(param));
      EXPECT_THAT(message_of([&] { at::sum(param); }), HasSubstr("[parameter w] is released"));
      {
        GatheredShards gathered({param}, group);
        EXPECT_TRUE(param.detach().equal(counted(0).detach()));
        gathered.finish();
      }
      EXPECT_TRUE(is_lone_shard(param));
    });
  }
}

TEST(LoneShards, WhatOneRankWritesBecomesTheValueOfAll) {
  run_ranks(2, [](Group& group) {
    const at::Tensor param = counted(0);
    shard_param(param, "w", DType::f32, group);
    {
      GatheredShards gathered({param}, group);
      param.detach().fill_(group.rank() == 1 ? 7.0 : 5.0);
      gathered.finish(/*written_by=*/1);
    }
    GatheredShards gathered({param}, group);
    EXPECT_TRUE((param.detach() == 7.0).all().item<bool>());
    gathered.finish();
  });
}

TEST(LoneShards, WhatIsWrittenAndNotFinishedIsDropped) {
  run_ranks(2, [](Group& group) {
    const at::Tensor param = counted(0);
    shard_param(param, "w", DType::f32, group);
    {
      GatheredShards gathered({param}, group);
      param.detach().fill_(7.0);
    }
    GatheredShards gathered({param}, group);
    EXPECT_TRUE(param.detach().equal(counted(0).detach()));
    gathered.finish();
  });
}

TEST(LoneShards, AParameterThatStandsEmptyGetsItsShapeBack) {
  run_ranks(2, [](Group& group) {
    const at::Tensor param = counted(0);
    shard_param(param, "w", DType::f32, group, Standing::empty);
    EXPECT_EQ(param.numel(), 0);
    EXPECT_TRUE(is_lone_shard(param));
    restore_shapes({param});
    EXPECT_EQ(param.numel(), 300);
    EXPECT_THAT(message_of([&] { at::sum(param); }), HasSubstr("is released"));
  });
}

}  // namespace
}  // namespace shoal
