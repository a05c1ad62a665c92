// Ranks as threads: the grid of collectives, and every way in which a world can end.
#include "comm/host/thread_board.h"

#include <gtest/gtest.h>

#include "collectives/collective_cases.h"
#include "shoal/error.h"
#include "unit/comm/split_cases.h"
#include "unit/comm/world_endings.h"

namespace shoal {
namespace {

testing::Groups make(int world, Timeout timeout) { return make_thread_groups(world, timeout); }

class ThreadGroups : public ::testing::TestWithParam<int> {};

TEST_P(ThreadGroups, CollectivesGiveTheContractsBits) {
  testing::run_ranks(make_thread_groups(GetParam()),
                     [](Group& group) { testing::check_collectives(group, testing::Memory::of_group); });
}
TEST_P(ThreadGroups, ChannelsRunIndependently) { testing::check_channels_are_independent(make, GetParam()); }
TEST_P(ThreadGroups, PartsRunBesideEachOther) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout), testing::check_parts_beside_each_other);
}
TEST_P(ThreadGroups, CollectivesOfPartsGiveTheContractsBits) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout),
                     [](Group& group) { testing::check_collectives_of_parts(group, testing::Memory::of_group); });
}
INSTANTIATE_TEST_SUITE_P(Worlds, ThreadGroups, ::testing::Values(1, 2, 3, 4));

TEST(ThreadBoard, RanksAtDifferentCollectivesAreNamed) { testing::check_different_collectives_are_named(make); }
TEST(ThreadBoard, RanksWithDifferentSizesAreNamed) { testing::check_different_sizes_are_named(make); }
TEST(ThreadBoard, AbortWakesEveryRankOnEveryChannel) { testing::check_abort_wakes_everyone(make); }
TEST(ThreadBoard, AFailureThatIsWrittenDownIsHeardByEveryone) { testing::check_fate_is_heard_by_everyone(make); }
TEST(ThreadBoard, TimeoutNamesTheRankThatDoesNotArrive) { testing::check_timeout_names_the_late_rank(make); }
TEST(ThreadBoard, ARankThatLeavesIsNamedToThoseWhoWaitForIt) { testing::check_leaving_is_named(make, 0); }
TEST(ThreadBoard, LeavingWithACollectiveInFlightFailsItsHandle) {
  testing::check_leaving_in_flight_does_not_hang(make);
}

TEST(ThreadBoard, PartsCanBeSplitAgain) { testing::run_ranks(make(4, kDefaultTimeout), testing::check_parts_of_parts); }
TEST(ThreadBoard, RanksThatWantDifferentPartsAreNamed) { testing::check_different_parts_are_named(make); }
TEST(ThreadBoard, WrongPartsAreAnErrorAndTheGroupGoesOn) {
  testing::run_ranks(make(2, kDefaultTimeout), testing::check_wrong_parts_are_an_error);
}
TEST(ThreadBoard, ARankThatLeavesAPartIsNamedByItsNumberInTheWorld) { testing::check_leaving_a_part_is_named(make); }
TEST(ThreadBoard, AbortInAPartWakesEveryRank) { testing::check_abort_in_a_part_wakes_everyone(make); }
TEST(ThreadBoard, ADisagreementInAPartNamesRanksByTheirNumberInTheWorld) {
  testing::check_disagreement_in_a_part_is_named(make);
}
TEST(ThreadBoard, TimeoutInAPartNamesTheRankThatHoldsAllUp) {
  testing::check_timeout_in_a_part_names_who_holds_all_up(make, std::chrono::milliseconds(2000));
}

}  // namespace
}  // namespace shoal
