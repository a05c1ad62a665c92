// Gloo with ranks as threads: the grid of collectives, and every way in which a world can end.
#include "comm/host/gloo_carrier.h"

#include <gtest/gtest.h>

#include "collectives/collective_cases.h"
#include "unit/comm/gloo_groups.h"
#include "unit/comm/split_cases.h"
#include "unit/comm/world_endings.h"

namespace shoal {
namespace {

using testing::make_gloo_groups;

class GlooGroups : public ::testing::TestWithParam<int> {};

TEST_P(GlooGroups, CollectivesGiveTheContractsBits) {
  testing::run_ranks(make_gloo_groups(GetParam(), kDefaultTimeout),
                     [](Group& group) { testing::check_collectives(group, testing::Memory::of_group); });
}
TEST_P(GlooGroups, ChannelsRunIndependently) { testing::check_channels_are_independent(make_gloo_groups, GetParam()); }
TEST_P(GlooGroups, PartsRunBesideEachOther) {
  testing::run_ranks(make_gloo_groups(GetParam(), kDefaultTimeout), testing::check_parts_beside_each_other);
}
TEST_P(GlooGroups, CollectivesOfPartsGiveTheContractsBits) {
  testing::run_ranks(make_gloo_groups(GetParam(), kDefaultTimeout),
                     [](Group& group) { testing::check_collectives_of_parts(group, testing::Memory::of_group); });
}
INSTANTIATE_TEST_SUITE_P(Worlds, GlooGroups, ::testing::Values(1, 2, 3, 4));

// What crosses between hosts goes there once and is passed on; sizes on both sides of what is worth it, and of a piece.
class GlooOnHosts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(GlooOnHosts, GathersGiveTheSameBytesByTwoSteps) {
  const auto world = static_cast<int>(GetParam().size());
  testing::run_ranks(testing::make_gloo_groups_on(GetParam(), world, kDefaultTimeout), [](Group& group) {
    for (const size_t nbytes :
         {size_t{0}, size_t{1}, (size_t{32} << 10) - 1, size_t{32} << 10, (size_t{1} << 20) + 1}) {
      for (const bool in_place : {false, true}) {
        testing::check_all_gather(group, testing::Memory::of_group, nbytes, in_place);
        testing::check_all_gather(group, testing::Memory::foreign, nbytes, in_place);
      }
    }
    testing::check_all_gather(group, testing::Memory::of_group, (size_t{3} << 20) + 5, true);
    testing::check_all_reduce(group, testing::Memory::of_group, DType::f32, 300'001);
    testing::check_reduce_scatter(group, testing::Memory::of_group, {DType::f32, DType::f32, 9001, true});
  });
}
TEST_P(GlooOnHosts, PartsOfThemGiveTheContractsBits) {
  const auto world = static_cast<int>(GetParam().size());
  testing::run_ranks(testing::make_gloo_groups_on(GetParam(), world, kDefaultTimeout),
                     [](Group& group) { testing::check_collectives_of_parts(group, testing::Memory::of_group); });
}
INSTANTIATE_TEST_SUITE_P(Hosts, GlooOnHosts,
                         ::testing::Values(std::vector<int>{0, 1}, std::vector<int>{0, 1, 0},
                                           std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1},
                                           std::vector<int>{0, 1, 1, 1}, std::vector<int>{0, 0, 1, 2}));

TEST(GlooCarrier, StagingStaysWithinThePieces) {
  testing::run_ranks(make_gloo_groups(2, kDefaultTimeout), [](Group& group) {
    testing::check_reduce_scatter(group, testing::Memory::of_group,
                                  {DType::f32, DType::f32, 100'001, false, 0, 50'000});
    EXPECT_LE(full(group).staging_nbytes(), 50'000u * 4);
    EXPECT_GT(full(group).staging_nbytes(), 0u);
  });
}

TEST(GlooCarrier, RanksAtDifferentCollectivesAreNamed) {
  testing::check_different_collectives_are_named(make_gloo_groups);
}
TEST(GlooCarrier, RanksWithDifferentSizesAreNamed) { testing::check_different_sizes_are_named(make_gloo_groups); }
TEST(GlooCarrier, AbortWakesEveryRankOnEveryChannel) { testing::check_abort_wakes_everyone(make_gloo_groups); }
TEST(GlooCarrier, AFailureThatIsWrittenDownIsHeardByEveryone) {
  testing::check_fate_is_heard_by_everyone(make_gloo_groups);
}
TEST(GlooCarrier, TimeoutNamesTheRankThatDoesNotArrive) {
  testing::check_timeout_names_the_late_rank(make_gloo_groups);
}
TEST(GlooCarrier, ARankThatLeavesIsNamedToThoseWhoWaitForIt) { testing::check_leaving_is_named(make_gloo_groups, 0); }
TEST(GlooCarrier, LeavingWithACollectiveInFlightFailsItsHandle) {
  testing::check_leaving_in_flight_does_not_hang(make_gloo_groups);
}

TEST(GlooCarrier, PartsCanBeSplitAgain) {
  testing::run_ranks(make_gloo_groups(4, kDefaultTimeout), testing::check_parts_of_parts);
}
TEST(GlooCarrier, RanksThatWantDifferentPartsAreNamed) { testing::check_different_parts_are_named(make_gloo_groups); }
TEST(GlooCarrier, WrongPartsAreAnErrorAndTheGroupGoesOn) {
  testing::run_ranks(make_gloo_groups(2, kDefaultTimeout), testing::check_wrong_parts_are_an_error);
}
TEST(GlooCarrier, ARankThatLeavesAPartIsNamedByItsNumberInTheWorld) {
  testing::check_leaving_a_part_is_named(make_gloo_groups);
}
TEST(GlooCarrier, AbortInAPartWakesEveryRank) { testing::check_abort_in_a_part_wakes_everyone(make_gloo_groups); }
TEST(GlooCarrier, ADisagreementInAPartNamesRanksByTheirNumberInTheWorld) {
  testing::check_disagreement_in_a_part_is_named(make_gloo_groups);
}
TEST(GlooCarrier, TimeoutInAPartNamesTheRankThatHoldsAllUp) {
  testing::check_timeout_in_a_part_names_who_holds_all_up(make_gloo_groups, std::chrono::milliseconds(4000));
}

}  // namespace
}  // namespace shoal
