#include "train/same_bits.h"

#include <gmock/gmock.h>

namespace shoal::train {
namespace {

using ::testing::HasSubstr;

Config config_of(const std::string& more = "", int world = 2) {
  return Config::from_text(R"({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 2)" + more + "}",
                           {.world_size = world});
}

std::string text_of(const Config& config, SameBitsFacts facts = {}) {
  if (facts.worlds.size() == 1) facts.worlds = divisors_of(24);
  return same_bits_text(config, facts);
}

const std::string kStage2 = R"(, "zero_optimization": {"stage": 2})";
constexpr const char* kAll = "same bits at 1, 2, 3, 4, 6, 8, 12, 24 ranks";

TEST(SameBits, NamesTheNumbersOfRanks) {
  EXPECT_EQ(text_of(config_of(kStage2)), kAll);
  EXPECT_EQ(text_of(config_of(R"(, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true})")), kAll);
  EXPECT_EQ(text_of(config_of(R"(, "shoal": {"reproducible": true})")), kAll);
}

TEST(SameBits, NamesTheThreadsWhereTheyFollowTheRanks) {
  EXPECT_EQ(text_of(config_of(kStage2), {.threads_follow_ranks = true, .threads = 4}),
            std::string(kAll) + " with --threads 4 at each");
  EXPECT_EQ(text_of(config_of(kStage2), {.on_gpu = true, .deterministic = true, .threads_follow_ranks = true}), kAll)
      << "a GPU computes without them";
}

TEST(SameBits, SaysWhyNot) {
  const std::string other = "other bits at another number of ranks: ";
  for (const std::string stage : {"0", "1"}) {
    EXPECT_EQ(text_of(config_of(R"(, "zero_optimization": {"stage": )" + stage + "}")),
              other + "stage " + stage + " adds up micro-steps on each rank before ranks do; set shoal.reproducible");
  }
  EXPECT_THAT(text_of(config_of(kStage2 + R"(, "gradient_allreduce_op": "sum")")),
              HasSubstr(other + "gradient_allreduce_op is sum"));
  const Config by_nccl = config_of(kStage2 + R"(, "shoal": {"reduce": "nccl"})");
  EXPECT_THAT(text_of(by_nccl, {.on_gpu = true, .deterministic = true}), HasSubstr(other + "shoal.reduce nccl"));
  EXPECT_EQ(text_of(by_nccl), kAll) << "in host memory the ranks add exactly";
  EXPECT_THAT(text_of(config_of(kStage2), {.on_gpu = true}), HasSubstr(other + "kernels of the GPU"));
  EXPECT_THAT(same_bits_text(config_of(kStage2), {.worlds = {2}}),
              HasSubstr("follows from the ranks; give train_batch_size (48) and train_micro_batch_size_per_gpu (2)"));
}

TEST(SameBits, WhatIsQuantizedDependsOnTheHostsAndIsExactOnOneRank) {
  EXPECT_EQ(text_of(config_of(R"(, "zero_optimization": {"stage": 3, "zero_quantized_weights": true})")),
            "same bits at 2, 3, 4, 6, 8, 12, 24 ranks");
  const std::string frozen = R"(, "zero_optimization": {"stage": 3, "zero_quantized_nontrainable_weights": true})";
  EXPECT_EQ(text_of(config_of(frozen)), kAll) << "nothing is frozen";
  EXPECT_EQ(text_of(config_of(frozen), {.freezes = true}), "same bits at 2, 3, 4, 6, 8, 12, 24 ranks");
  Config gradients = config_of(R"(, "zero_optimization": {"stage": 2, "zero_quantized_gradients": true})", 4);
  EXPECT_EQ(text_of(gradients), kAll) << "on one host";
  gradients.shoal.ranks_per_host = 2;
  EXPECT_THAT(text_of(gradients), HasSubstr("zero_quantized_gradients rounds the sums of hosts"));
  // Two ranks in one group have exact sums, and four have not.
  const std::string hpz =
      R"(, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "zero_hpz_partition_size": 2})";
  EXPECT_THAT(text_of(config_of(hpz, 2)), HasSubstr("zero_quantized_gradients rounds the sums of hosts"));
  EXPECT_THAT(text_of(config_of(R"(, "zero_optimization": {"stage": 3, "zero_quantized_weights": true})", 1)),
              HasSubstr("on one rank weights are exact, and quantized on several"));
}

TEST(SameBits, OneMicroBatchCannotBeShared) {
  const Config config = Config::from_text(R"({"train_micro_batch_size_per_gpu": 4})");
  EXPECT_THAT(same_bits_text(config, {.worlds = {1}}), HasSubstr("a step is one micro-batch; give train_batch_size"));
}

TEST(SameBits, ALongListIsCut) {
  const Config config = Config::from_text(
      R"({"train_batch_size": 5040, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(same_bits_text(config, {.worlds = divisors_of(5040)}),
            "same bits at 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, ... 5040 ranks");
}

TEST(DivisorsOf, AreInOrderAndEachOnce) {
  EXPECT_EQ(divisors_of(1), (std::vector<int>{1}));
  EXPECT_EQ(divisors_of(36), (std::vector<int>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
  EXPECT_EQ(divisors_of(7), (std::vector<int>{1, 7}));
}

}  // namespace
}  // namespace shoal::train
