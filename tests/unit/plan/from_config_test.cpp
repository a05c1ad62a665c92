#include "plan/from_config.h"

#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal {
namespace {

TEST(FromConfig, WithoutOverlapNothingRunsAhead) {
  Config config;
  config.zero.prefetch_bucket_size = 7;
  EXPECT_EQ(gather_limits(config).prefetch_numel, 7);
  EXPECT_EQ(reduce_slots(config), 2);
  config.zero.overlap_comm = false;
  EXPECT_EQ(gather_limits(config).prefetch_numel, 0);
  EXPECT_EQ(reduce_slots(config), 1);
}

TEST(FromConfig, WeightsOffTheDeviceComeAUnitAheadUnlessNoneIsWanted) {
  Config config;
  EXPECT_FALSE(gather_limits(config).one_ahead);
  for (const Tier tier : {Tier::host, Tier::disk}) {
    config.zero.offload_param.tier = tier;
    EXPECT_TRUE(gather_limits(config).one_ahead);
  }
  Config none = config;
  none.zero.prefetch_bucket_size = 0;
  EXPECT_FALSE(gather_limits(none).one_ahead);
  config.zero.overlap_comm = false;
  EXPECT_FALSE(gather_limits(config).one_ahead);
}

TEST(FromConfig, UnitsOnDiskRunAheadByTheirBuffers) {
  Config config;
  config.zero.stage = 3;
  config.zero.offload_param = {.tier = Tier::disk, .buffer_count = 2, .max_in_cpu = 0};
  const ParamSpec weight{.name = "w", .shape = {1024}};
  const ModelLayout layout =
      lay_out({{"a", {weight}, {}}, {"b", {weight}, {}}, {"c", {weight}, {}}}, {.mesh = 2, .persistence_threshold = 0});
  EXPECT_EQ(gather_limits(config, layout).buffer_of, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(gather_limits(config, layout).prefetch_numel, config.zero.prefetch_bucket_size);
  config.zero.offload_param.tier = Tier::host;
  EXPECT_EQ(gather_limits(config, layout).buffer_of, (std::vector<int>{-1, -1, -1}));
}

TEST(FromConfig, EachOptimizerKeepsItsMoments) {
  EXPECT_EQ(moments_of({.kind = OptimizerKind::adamw}), 2);
  EXPECT_EQ(moments_of({.kind = OptimizerKind::adam}), 2);
  EXPECT_EQ(moments_of({.kind = OptimizerKind::sgd}), 0);
  EXPECT_EQ(moments_of({.kind = OptimizerKind::sgd, .momentum = 0.9}), 1);
  EXPECT_EQ(moments_of({.kind = OptimizerKind::adagrad}), 1);
  EXPECT_EQ(moments_of({.kind = OptimizerKind::lion}), 1);
}

TEST(FromConfig, MemoryOptionsCarryWhatThePlanDependsOn) {
  Config config;
  config.zero.stage = 3;
  config.batch.accumulation_steps = 4;
  config.communication_dtype = DType::bf16;
  config.grad_accum_dtype = DType::f16;
  config.shoal.reproducible = true;
  config.zero.param_persistence_threshold = 11;
  config.zero.max_live_parameters = 12;
  const MemoryOptions options = memory_options(config);
  EXPECT_EQ(options.gradients.stage, 3);
  EXPECT_EQ(options.gradients.accumulation_steps, 4);
  EXPECT_EQ(options.gradients.communication_dtype, DType::bf16);
  EXPECT_EQ(options.gradients.accumulation_dtype, DType::f16);
  EXPECT_TRUE(options.gradients.reproducible);
  EXPECT_EQ(options.gather.max_live_numel, 12);
  EXPECT_EQ(layout_options(config, 5).persistence_threshold, 11);
  EXPECT_EQ(layout_options(config, 5).mesh.world(), 5);
}

TEST(FromConfig, StatesAreFp32UnlessToldOtherwise) {
  Config config;
  config.precision = Precision::bf16;
  EXPECT_EQ(moment_dtype(config), DType::f32);
  EXPECT_FALSE(has_narrow_masters(config));
  config.optimizer.fp32_states = false;  // of the masters' dtype, which is fp32
  EXPECT_EQ(moment_dtype(config), DType::f32);
  config.bf16_masters = true;
  EXPECT_EQ(moment_dtype(config), DType::bf16);
  EXPECT_TRUE(has_narrow_masters(config));
  config.bf16_masters = false;
  config.bf16_optimizer_states = true;
  EXPECT_EQ(moment_dtype(config), DType::bf16);
  EXPECT_EQ(chunk_options(config, 0).moment_dtype, DType::bf16);
}

TEST(FromConfig, GradientsOfNarrowMastersAreNarrowUnlessToldOtherwise) {
  Config config;
  config.precision = Precision::fp16;
  EXPECT_EQ(gradient_options(config).accumulation_dtype, std::nullopt);
  config.fp16.master_weights_and_grads = true;
  EXPECT_EQ(gradient_options(config).accumulation_dtype, DType::f16);
  config.grad_accum_dtype = DType::f32;
  EXPECT_EQ(gradient_options(config).accumulation_dtype, DType::f32);
}

TEST(FromConfig, TheHostUpdatesAheadWhereItUpdates) {
  Config config;
  EXPECT_FALSE(updates_ahead(config, /*on_gpu=*/false));
  config.shoal.speculative_update = true;
  EXPECT_TRUE(updates_ahead(config, /*on_gpu=*/false));
  EXPECT_FALSE(updates_ahead(config, /*on_gpu=*/true)) << "the GPU updates";
  config.shoal.offload_update = OffloadUpdate::host;
  EXPECT_TRUE(updates_ahead(config, /*on_gpu=*/true));
  EXPECT_TRUE(memory_options(config, /*on_gpu=*/true).spare_states);
}

TEST(FromConfig, APrecisionIsADtype) {
  EXPECT_EQ(dtype_of(Precision::fp32), DType::f32);
  EXPECT_EQ(dtype_of(Precision::bf16), DType::bf16);
  EXPECT_EQ(dtype_of(Precision::fp16), DType::f16);
}

Config groups_of(int ranks, int stage = 3) {
  Config config;
  config.zero.stage = stage;
  config.zero.mics_shard_size = ranks;
  return config;
}

TEST(FromConfig, GroupsOfRanksAreTheMeshAndTheirStatesArePartsOfAGroup) {
  EXPECT_EQ(mesh_of(groups_of(2), 6).to_text(), "replica 3 x shard 2");
  EXPECT_EQ(mesh_of(groups_of(6), 6).to_text(), "6");
  EXPECT_EQ(mesh_of(groups_of(1), 4).to_text(), "replica 4 x shard 1");
  EXPECT_EQ(mesh_of(groups_of(2, 0), 6).to_text(), "6");
  EXPECT_EQ(mesh_of(groups_of(-1), 6).to_text(), "6");
  EXPECT_EQ(mesh_of(groups_of(2), 6).data_ranks(), 6);
  EXPECT_EQ(stage_of(groups_of(2)).row, (StageRow{Over::shard, Over::shard, Over::shard}));
  EXPECT_EQ(stage_of(groups_of(2, 2)).row, (StageRow{Over::nobody, Over::shard, Over::shard}));
  EXPECT_EQ(stage_of(groups_of(2, 1)).row, (StageRow{Over::nobody, Over::nobody, Over::shard}));
  EXPECT_EQ(stage_of(groups_of(-1)), Stage(3));
  EXPECT_THROW(mesh_of(groups_of(4), 6), Error);
  EXPECT_THROW(mesh_of(groups_of(8), 4), Error);
}

TEST(FromConfig, ASecondCopyLeavesEverythingCutOverTheWorld) {
  Config config;
  config.zero.stage = 3;
  config.zero.hpz_partition_size = 2;
  EXPECT_EQ(mesh_of(config, 4).to_text(), "replica 2 x shard 2");
  EXPECT_EQ(stage_of(config), Stage(3));
  EXPECT_TRUE(shard_options(config).second);
  EXPECT_THROW(mesh_of(config, 5), Error);
  config.zero.stage = 2;
  EXPECT_EQ(mesh_of(config, 4).to_text(), "4");
}

TEST(FromConfig, HostsSayHowManyRanksShareOne) {
  Config config;
  config.zero.stage = 3;
  config.shoal.shard_size = kShardByHost;
  EXPECT_EQ(mesh_of(with_hosts(config, {0, 0, 1, 1}), 4).to_text(), "replica 2 x shard 2");
  EXPECT_EQ(mesh_of(with_hosts(config, {}), 4).to_text(), "4") << "one host has all";
  EXPECT_THROW(with_hosts(config, {0, 0, 0, 1}), Error);
  EXPECT_THROW(with_hosts(config, {0, 1, 0, 1}), Error);
  config.shoal.shard_size = 0;
  EXPECT_EQ(with_hosts(config, {0, 0, 0, 1}).shoal.ranks_per_host, 0) << "nobody asks";
}

TEST(FromConfig, AGroupOverHostsIsGatheredByHost) {
  Config config = groups_of(4);
  config.zero.mics_hierarchical_gather = true;
  config.shoal.ranks_per_host = 2;
  EXPECT_EQ(mesh_of(config, 8).to_text(), "replica 2 x span 2 x shard 2");
  EXPECT_EQ(mesh_of(config, 4).to_text(), "span 2 x shard 2");
  config.shoal.ranks_per_host = 4;
  EXPECT_EQ(mesh_of(config, 8).to_text(), "replica 2 x shard 4");
  config.shoal.ranks_per_host = 3;
  EXPECT_THROW(mesh_of(config, 8), Error);
}

TEST(FromConfig, QuantizedGradientsStandOnHostsAndAreCutOverTheWorld) {
  Config config;
  config.zero.stage = 2;
  config.zero.quantized_gradients = true;
  EXPECT_EQ(mesh_of(config, 4).to_text(), "4") << "one host";
  config = with_hosts(config, {0, 0, 1, 1});
  EXPECT_EQ(mesh_of(config, 4).to_text(), "replica 2 x shard 2");
  EXPECT_EQ(stage_of(config), Stage(2));
  EXPECT_EQ(gradient_options(config).sum_bits, 4);
  EXPECT_FALSE(gradient_options(config).keeps_errors);
  config.zero.error_feedback = 0;
  EXPECT_TRUE(gradient_options(config).keeps_errors);
  config.zero.stage = 1;  // as `shoal plan` asks for every stage
  EXPECT_EQ(mesh_of(config, 4).to_text(), "4");
  EXPECT_EQ(gradient_options(config).sum_bits, 0);
  config.zero.stage = 3;
  EXPECT_THROW(with_hosts(config, {0, 1, 1}), Error);
  config.zero.hpz_partition_size = 2;
  EXPECT_NO_THROW(with_hosts(config, {0, 1, 1}));
}

}  // namespace
}  // namespace shoal
