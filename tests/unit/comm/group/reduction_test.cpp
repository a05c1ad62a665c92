// The ordered sum over what a carrier brings together. (On real transports: collective_cases.h.)
#include "comm/group/reduction.h"

#include <gtest/gtest.h>

#include "collectives/collective_cases.h"
#include "unit/comm/lone_carrier.h"

namespace shoal {
namespace {

constexpr int64_t kShardNumel = 100;
constexpr int kWorld = 3;

std::vector<std::vector<float>> brought(int64_t numel) {
  std::vector<std::vector<float>> all(kWorld, std::vector<float>(static_cast<size_t>(numel)));
  for (int rank = 0; rank < kWorld; ++rank) {
    testing::fill(all[static_cast<size_t>(rank)].data(), DType::f32, numel, rank, 1);
  }
  return all;
}

std::vector<const void*> pointers(const std::vector<std::vector<float>>& all) {
  std::vector<const void*> found;
  for (const auto& each : all) found.push_back(each.data());
  return found;
}

TEST(Reduction, IsTheSumInRankOrderWhateverThePartsAre) {
  for (const size_t part_nbytes : {size_t{64}, size_t{128}, size_t{1} << 20}) {
    auto all = brought(kShardNumel * kWorld);
    testing::LoneCarrier carrier(pointers(all), 1, part_nbytes);
    std::vector<float> shard(kShardNumel, 2.0f);
    ReduceScatter args;
    args.whole = all[1].data();
    args.shard = shard.data();
    args.shard_numel = kShardNumel;
    args.post = 0.25f;
    args.carry = 0.5f;
    reduce_scatter(carrier, {}, args);
    for (int64_t i = 0; i < kShardNumel; ++i) {
      const float expected = testing::expected_sum(kWorld, DType::f32, kShardNumel + i, 1, 1.0f) * 0.25f;
      EXPECT_TRUE(testing::same_element(shard.data(), DType::f32, i, expected)) << i;
    }
  }
}

TEST(Reduction, OfFewElementsIsMadeByEveryRankInOneMeeting) {
  auto all = brought(kShardNumel);
  testing::LoneCarrier carrier(pointers(all), 2, 64);
  AllReduce args;
  args.data = all[2].data();
  args.numel = kShardNumel;
  all_reduce(carrier, {}, args);
  EXPECT_EQ(carrier.exchanges, 1);
  EXPECT_EQ(carrier.gathered.whole, nullptr);
  for (int64_t i = 0; i < kShardNumel; ++i) {
    EXPECT_TRUE(testing::same_element(all[2].data(), DType::f32, i, testing::expected_sum(kWorld, DType::f32, i, 1)));
  }
}

TEST(Reduction, OfManyElementsIsMadeInStripsOfWhichTheLastIsShort) {
  constexpr int64_t kMany = 20'000;  // a third is 6667: the last strip has one less
  auto all = brought(kMany);
  testing::LoneCarrier carrier(pointers(all), 2, 4096);
  AllReduce args;
  args.data = all[2].data();
  args.numel = kMany;
  all_reduce(carrier, {}, args);
  EXPECT_EQ(carrier.gathered.strip_nbytes, 6667u * 4);
  EXPECT_EQ(carrier.gathered.nbytes_at(2), 6666u * 4);
  EXPECT_EQ(carrier.gathered.own, carrier.gathered.place(2));
  for (int64_t i = 2 * 6667; i < kMany; ++i) {
    ASSERT_TRUE(testing::same_element(all[2].data(), DType::f32, i, testing::expected_sum(kWorld, DType::f32, i, 1)));
  }
}

TEST(Reduction, OfOneRankInPlaceLeavesTheElementsAlone) {
  std::vector<float> value{1.5f};
  testing::LoneCarrier carrier({value.data()}, 0, 64);
  AllReduce args;
  args.data = value.data();
  args.numel = 1;
  all_reduce(carrier, {}, args);
  EXPECT_EQ(value[0], 1.5f);
  args.post = 0.5f;
  all_reduce(carrier, {}, args);
  EXPECT_EQ(value[0], 0.75f);
}

}  // namespace
}  // namespace shoal
