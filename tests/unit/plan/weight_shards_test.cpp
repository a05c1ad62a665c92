#include "plan/weight_shards.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// Units of 1024, 4096, 1024 and 2048 elements, on two ranks; the last one has a frozen parameter too.
ModelLayout four_units() {
  const ParamSpec frozen{.name = "f", .shape = {512}, .dtype = DType::f32, .trainable = false};
  return lay_out({{"a", {{"w", {1024}, DType::bf16}}, {}},
                  {"b", {{"w", {4096}, DType::bf16}}, {}},
                  {"c", {{"w", {1024}, DType::bf16}}, {}},
                  {"d", {{"w", {2048}, DType::bf16}, frozen}, {}}},
                 {.mesh = 2, .persistence_threshold = 0});
}

std::vector<Tier> tiers_of(const ShardOptions& options) {
  std::vector<Tier> tiers;
  for (const UnitShards& unit : place_shards(four_units(), options)) tiers.push_back(unit.tier);
  return tiers;
}

TEST(WeightShards, AUnitsShardsLieTogether) {
  std::vector<size_t> nbytes;
  for (const UnitShards& unit : place_shards(four_units(), {.stage = 3})) nbytes.push_back(unit.nbytes);
  EXPECT_EQ(nbytes, (std::vector<size_t>{1024, 4096, 1024, 2048 + 1024}));
  for (const UnitShards& unit : place_shards(four_units(), {.stage = 2, .tier = Tier::disk})) {
    EXPECT_EQ(unit.nbytes, 0u);
    EXPECT_EQ(unit.tier, Tier::device);
  }
}

TEST(WeightShards, WhatTheHostMayKeepIsTakenFromTheFront) {
  const Tier host = Tier::host, disk = Tier::disk;
  EXPECT_EQ(tiers_of({.stage = 3, .tier = disk, .max_in_host = 0}), (std::vector<Tier>{disk, disk, disk, disk}));
  EXPECT_EQ(tiers_of({.stage = 3, .tier = disk, .max_in_host = 1024}), (std::vector<Tier>{host, disk, host, disk}));
  EXPECT_EQ(tiers_of({.stage = 3, .tier = disk, .max_in_host = 1 << 20}), (std::vector<Tier>{host, host, host, host}));
  EXPECT_EQ(tiers_of({.stage = 3, .tier = host, .max_in_host = 0}), (std::vector<Tier>{host, host, host, host}));
  EXPECT_EQ(tiers_of({.stage = 3, .max_in_host = 1 << 20})[0], Tier::device);
}

// 4352 elements a rank: 512, 2048, 512, and 1024 beside 256.
TEST(WeightShards, TheFrontUnitsStayOnTheDeviceAsTheRatioSays) {
  const Tier device = Tier::device, host = Tier::host, disk = Tier::disk;
  EXPECT_EQ(tiers_of({.stage = 3, .tier = host, .ratio = 0}), (std::vector<Tier>{device, device, device, device}));
  EXPECT_EQ(tiers_of({.stage = 3, .tier = host, .ratio = 0.3}), (std::vector<Tier>{device, device, host, host}))
      << "no less than the share goes";
  EXPECT_EQ(tiers_of({.stage = 3, .tier = host, .ratio = 0.89}), (std::vector<Tier>{host, host, host, host}));
  EXPECT_EQ(tiers_of({.stage = 3, .tier = disk, .ratio = 0.5, .max_in_host = 1300}),
            (std::vector<Tier>{device, disk, device, host}))
      << "a unit that fits stays, whatever went before it";
  EXPECT_EQ(notice_of_unused_offload(four_units(), {.stage = 3, .tier = disk, .ratio = 0, .max_in_host = 1 << 20}), "");
}

TEST(WeightShards, ADiskThatNothingGoesToIsSpokenOf) {
  ShardOptions options{.stage = 3, .tier = Tier::disk, .max_in_host = 4352};  // 8704 elements on two ranks
  EXPECT_EQ(notice_of_unused_offload(four_units(), options),
            "offload_param.device nvme: all 4352 elements of a rank fit max_in_cpu 4352, nothing is on disk. Lower "
            "max_in_cpu.");
  options.max_in_host = 4351;
  EXPECT_EQ(notice_of_unused_offload(four_units(), options), "");
  EXPECT_EQ(notice_of_unused_offload(four_units(), {.stage = 2, .tier = Tier::disk, .max_in_host = 1 << 20}), "");
  EXPECT_EQ(notice_of_unused_offload(four_units(), {.stage = 3, .tier = Tier::host, .max_in_host = 1 << 20}), "");
}

TEST(WeightShards, AShareHoweverSmallIsOfAtLeastOneUnit) {
  const Tier device = Tier::device, host = Tier::host;
  EXPECT_EQ(tiers_of({.stage = 3, .tier = host, .ratio = 1e-12}), (std::vector<Tier>{device, device, device, host}));
}

TEST(WeightShards, AnOffloadOfNothingIsSpokenOf) {
  const ModelLayout whole =
      lay_out({{"a", {{"w", {1024}, DType::bf16}}, {}}}, {.mesh = 2, .persistence_threshold = 1024});
  for (const Tier tier : {Tier::host, Tier::disk}) {
    EXPECT_NE(notice_of_unused_offload(whole, {.stage = 3, .tier = tier}).find("persistence_threshold"),
              std::string::npos);
    EXPECT_EQ(notice_of_unused_offload(four_units(), {.stage = 3, .tier = tier}), "");
  }
  EXPECT_EQ(notice_of_unused_offload(whole, {.stage = 3}), "");
  EXPECT_EQ(notice_of_unused_offload(whole, {.stage = 2, .tier = Tier::host}), "");
}

TEST(WeightShards, TheFileHasThoseOnDisk) {
  const auto placed = place_shards(four_units(), {.stage = 3, .tier = Tier::disk, .max_in_host = 600});
  EXPECT_EQ(shards_on_disk(placed), (std::vector<size_t>{4096, 1024, 2048 + 1024}));
}

TEST(WeightShards, ThoseOnDiskTakeTheBuffersInTurn) {
  const auto placed = place_shards(four_units(), {.stage = 3, .tier = Tier::disk, .max_in_host = 600});
  EXPECT_EQ(shard_buffers(placed, 1), (std::vector<int>{-1, 0, 0, 0}));
  EXPECT_EQ(shard_buffers(placed, 2), (std::vector<int>{-1, 0, 1, 0}));
  EXPECT_EQ(shard_buffers(placed, 5), (std::vector<int>{-1, 0, 1, 2}));
}

// Blocks of 132 bytes for 128 elements: of a rank's own part, or of its part of a second copy.
TEST(WeightShards, WhatIsGatheredInBlocksIsKeptSoForOthers) {
  const ModelLayout layout = four_units();
  EXPECT_EQ(second_nbytes(layout, {.stage = 3}), 0u);
  EXPECT_EQ(second_nbytes(layout, {.stage = 3, .quantized = true}), (1024u + 4096 + 1024 + 2048 + 512) / 2 / 128 * 132);
  EXPECT_EQ(second_nbytes(layout, {.stage = 3, .quantized_frozen = true}), 512u / 2 / 128 * 132);
  EXPECT_EQ(second_nbytes(layout, {.stage = 2, .quantized = true}), 0u) << "nothing is gathered there";
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}});
  const ModelLayout on_hosts =
      lay_out({{"a", {{"w", {1024}, DType::bf16}}, {}}}, {.mesh = mesh, .persistence_threshold = 0});
  EXPECT_EQ(second_nbytes(on_hosts, {.stage = 3, .second = true}), 1024u / 2 * 2);
  EXPECT_EQ(second_nbytes(on_hosts, {.stage = 3, .second = true, .quantized = true}), 1024u / 2 / 128 * 132);
}

TEST(WeightShards, OneRankGathersNothingInBlocks) {
  const ModelLayout alone = lay_out({{"a", {{"w", {1024}, DType::bf16}}, {}}}, {.mesh = 1, .persistence_threshold = 0});
  EXPECT_FALSE(quantizes_weights(alone, {.stage = 3, .quantized = true}));
  EXPECT_TRUE(quantizes_weights(four_units(), {.stage = 3, .quantized = true}));
}

}  // namespace
}  // namespace shoal
