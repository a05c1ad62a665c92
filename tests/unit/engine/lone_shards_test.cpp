#include "shoal/lone_shards.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/engine.h"
#include "training/matrix_engine.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;
using testing::on_threads;

namespace {

at::Tensor counting(int64_t numel) { return at::arange(numel, at::kFloat).set_requires_grad(true); }

}  // namespace

TEST(LoneShards, AreRankZerosValuesWhenGathered) {
  for (int world = 1; world <= 3; ++world) {
    for (const int64_t numel : {1, 127, 128, 1000}) {
      const std::vector<bool> equal = on_threads<bool>(world, [&](Group& group) {
        at::Tensor param = counting(numel);
        if (group.rank() > 0) param.detach().zero_();
        shard_param(param, "w", DType::f32, group);
        EXPECT_TRUE(is_lone_shard(param));
        EXPECT_EQ(param.numel(), numel);
        EXPECT_THAT(message_of([&] { param.sum(); }), HasSubstr("[parameter w] is released"));
        GatheredShards gathered({param}, group);
        const bool same = param.detach().equal(counting(numel).detach());
        gathered.finish();
        EXPECT_TRUE(is_lone_shard(param));
        return same;
      });
      EXPECT_EQ(equal, std::vector<bool>(static_cast<size_t>(world), true)) << world << " ranks, " << numel;
    }
  }
}

TEST(LoneShards, TakeWhatOneRankWrote) {
  const std::vector<float> seen = on_threads<float>(3, [&](Group& group) {
    at::Tensor param = counting(500);
    shard_param(param, "w", DType::f32, group);
    {
      GatheredShards gathered({param}, group);
      param.detach().fill_(static_cast<float>(group.rank() + 1));
      gathered.finish(2);
    }
    GatheredShards gathered({param}, group);
    return param.detach().mean().item<float>();
  });
  EXPECT_EQ(seen, (std::vector<float>{3, 3, 3}));
}

TEST(LoneShards, GiveEachRankItsOwnPart) {
  for (int world = 1; world <= 3; ++world) {
    for (const int64_t numel : {1, 127, 1000}) {
      const auto parts = on_threads<at::Tensor>(world, [&](Group& group) {
        at::Tensor param = counting(numel);
        shard_param(param, "w", DType::f32, group, group.size() == 2 ? Standing::empty : Standing::released);
        return read_lone_shard(param, group.rank());
      });
      EXPECT_TRUE(at::cat(parts).equal(counting(numel).detach())) << world << " ranks, " << numel;
    }
  }
}

TEST(LoneShards, ThatStandEmptyArePassedOverAndKeepTheirShape) {
  const std::unique_ptr<Group> world = make_single_group();
  at::Tensor param = counting(12).detach().reshape({3, 4}).set_requires_grad(true);
  shard_param(param, "w", DType::f32, *world, Standing::empty);
  EXPECT_EQ(param.numel(), 0);
  param.detach().fill_(7);  // nothing to fill
  {
    GatheredShards gathered({param}, *world);
    EXPECT_EQ(param.sizes(), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(param.detach().sum().item<float>(), 66);
    gathered.finish();
  }
  EXPECT_EQ(param.numel(), 0);
  restore_shapes({param});
  EXPECT_EQ(param.sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_THAT(message_of([&] { param.sum(); }), HasSubstr("is released"));
}

TEST(LoneShards, ThatStandEmptyMayHaveNoDimension) {
  const std::unique_ptr<Group> world = make_single_group();
  at::Tensor param = counting(2)[1].detach().clone().set_requires_grad(true);
  shard_param(param, "w", DType::f32, *world, Standing::empty);
  EXPECT_EQ(param.numel(), 0);
  restore_shapes({param});
  EXPECT_EQ(param.dim(), 0);
  const GatheredShards gathered({param}, *world);
  EXPECT_EQ(param.item<float>(), 1);
}

TEST(LoneShards, ThatStandEmptyGetTheirShardBackAfterACast) {
  const std::unique_ptr<Group> world = make_single_group();
  at::Tensor param = counting(12).detach().reshape({3, 4}).set_requires_grad(true);
  shard_param(param, "w", DType::f32, *world, Standing::empty);
  const KeptShard kept(param);
  param.set_data(param.detach().to(at::kBFloat16));  // what Module.to(dtype) does
  EXPECT_FALSE(is_lone_shard(param));
  kept.give_back(param);
  EXPECT_TRUE(is_lone_shard(param));
  {
    GatheredShards gathered({param}, *world);
    EXPECT_EQ(param.sizes(), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(param.scalar_type(), at::kFloat);
    param.detach().fill_(2);
    gathered.finish(0);
  }
  param.set_data(param.detach().to(at::kBFloat16));
  kept.give_back(param);
  const GatheredShards again({param}, *world);
  EXPECT_EQ(param.detach().sum().item<float>(), 24);  // what was written meanwhile
}

TEST(LoneShards, AreNotGivenBackToAParameterThatGotOtherValues) {
  const std::unique_ptr<Group> world = make_single_group();
  at::Tensor param = counting(12).detach().set_requires_grad(true);
  shard_param(param, "w", DType::f32, *world, Standing::empty);
  const KeptShard kept(param);
  param.set_data(at::ones({5}));
  kept.give_back(param);
  EXPECT_FALSE(is_lone_shard(param));
  EXPECT_EQ(param.numel(), 5);
}

TEST(LoneShards, AreTakenOverByAnEngineAtEveryStage) {
  for (int stage = 0; stage < 4; ++stage) {
    const std::vector<float> sums = on_threads<float>(2, [&](Group& group) {
      at::Tensor param = counting(300);
      shard_param(param, "w", DType::f32, group);
      Config config;
      config.zero.stage = stage;
      config.zero.param_persistence_threshold = 0;
      config.batch.train_batch_size = group.size();
      Engine engine({{"unit", {{"w", param}}}}, config, group);
      const int id = engine.hooks().begin_gathered({"w"});
      const float sum = param.detach().sum().item<float>();
      engine.hooks().finish_gathered(id);
      return sum;
    });
    EXPECT_EQ(sums, (std::vector<float>{44850, 44850})) << "stage " << stage;
  }
}

}  // namespace shoal
