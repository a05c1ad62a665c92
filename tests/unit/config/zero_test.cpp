#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Zero, ReadsEverySizeByBothSpellings) {
  const ZeroConfig expected{.stage = 3,
                            .overlap_comm = false,
                            .reduce_bucket_size = 1,
                            .prefetch_bucket_size = 0,
                            .param_persistence_threshold = 5,
                            .model_persistence_threshold = 6,
                            .max_live_parameters = 7};
  EXPECT_EQ(parse_members(R"("zero_optimization": {"stage": 3, "overlap_comm": false, "reduce_bucket_size": 1,
    "prefetch_bucket_size": 0, "param_persistence_threshold": 5, "model_persistence_threshold": 6, "max_live_parameters": 7})")
                .zero,
            expected);
  EXPECT_EQ(parse_members(R"("zero_optimization": {"stage": 3, "overlap_comm": false, "reduce_bucket_size": 1,
    "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 5, "stage3_model_persistence_threshold": 6,
    "stage3_max_live_parameters": 7})")
                .zero,
            expected);
}

TEST(Zero, AutoSizesComeFromTheHiddenSize) {
  const char* text = R"("zero_optimization": {"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                                              "stage3_param_persistence_threshold": "auto"})";
  for (const int64_t hidden : {1, 7, 10, 4096, 100'000}) {
    const ZeroConfig zero = parse_members(text, {.hidden_size = hidden}).zero;
    EXPECT_EQ(zero.reduce_bucket_size, hidden * hidden);
    EXPECT_EQ(zero.prefetch_bucket_size, hidden * hidden * 9 / 10);
    EXPECT_EQ(zero.param_persistence_threshold, 10 * hidden);
  }
}

TEST(Zero, WhatLeavesGradientsOutIsRefusedAndWhatOnlyCommunicatesOtherwiseIsNoticed) {
  EXPECT_EQ(parse_members(R"("zero_optimization": {"elastic_checkpoint": true, "pipeline_loading_checkpoint": true,
    "zenflow": null})")
                .notices.size(),
            2u);
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"zenflow": {}})"),
            "[line 1, zero_optimization.zenflow] {} is not supported: it leaves gradients to later steps. Remove the "
            "section, and use offload_optimizer.");
}

TEST(Zero, GroupsOfRanksAreReadWithDeepSpeedsDefaults) {
  const Config plain = parse_members(R"("zero_optimization": {"stage": 3})");
  EXPECT_EQ(plain.zero.mics_shard_size, -1);
  EXPECT_EQ(plain.zero.hpz_partition_size, 1);
  EXPECT_FALSE(plain.zero.mics_hierarchical_gather);
  const Config mics = parse_members(
      R"("zero_optimization": {"stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": true})");
  EXPECT_EQ(mics.zero.mics_shard_size, 4);
  EXPECT_TRUE(mics.zero.mics_hierarchical_gather);
  EXPECT_TRUE(mics.notices.empty());
  EXPECT_EQ(parse_members(R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8})").zero.hpz_partition_size,
            8);
}

TEST(Zero, GroupsThatMeanNothingAreRefusedWithTheReason) {
  const auto mistake = [](const std::string& keys) { return mistakes_of("\"zero_optimization\": {" + keys + "}"); };
  EXPECT_NE(mistake(R"("stage": 0, "mics_shard_size": 2)").find("stage 0 shards nothing"), std::string::npos);
  EXPECT_NE(mistake(R"("stage": 3, "mics_shard_size": 2, "zero_hpz_partition_size": 2)").find("Remove one of them"),
            std::string::npos);
  EXPECT_NE(mistake(R"("stage": 2, "zero_hpz_partition_size": 2)").find("only stage 3 shards weights"),
            std::string::npos);
  EXPECT_NE(mistake(R"("stage": 3, "zero_hpz_partition_size": 2, "offload_param": {"device": "cpu"})")
                .find("a second copy of the weights on the device"),
            std::string::npos);
  EXPECT_NE(mistake(R"("stage": 2, "mics_shard_size": 2, "mics_hierarchical_params_gather": true)")
                .find("which only stage 3 does"),
            std::string::npos);
  EXPECT_NE(mistake(R"("stage": 3, "mics_hierarchical_params_gather": true)").find("there are none"),
            std::string::npos);
}

TEST(Zero, LeafModulesHaveNoEffect) {
  EXPECT_EQ(parse_members(R"("zero_optimization": {"leaf_module": {"names": ["moe"]}})").notices.size(), 1u);
  EXPECT_EQ(parse_members(R"("zero_optimization": {"leaf_module": null})").notices.size(), 0u);
}

}  // namespace shoal::config
