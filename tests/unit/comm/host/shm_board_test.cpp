// Shared memory, with threads in the place of processes: each rank has its own world object and maps the others'
// memory through /proc as a process would. Deaths are in tests/process.
#include "comm/host/shm_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "collectives/collective_cases.h"
#include "comm/host/board_carrier.h"
#include "comm/world/channel_group.h"
#include "unit/comm/memory_store.h"
#include "unit/comm/split_cases.h"
#include "unit/comm/world_endings.h"

namespace shoal {
namespace {

testing::Groups make(int world, Timeout timeout) {
  const auto store = std::make_shared<testing::MemoryStore>();
  testing::Groups groups;
  for (int rank = 0; rank < world; ++rank) {  // rank 0 first: it makes the segments that the others map
    ShmWorld::Options options;
    options.rank = rank;
    options.timeout = timeout;
    options.pids.assign(static_cast<size_t>(world), getpid());
    options.store = store;
    auto board = std::make_unique<ShmBoard>(std::make_shared<ShmWorld>(options));
    groups.push_back(std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::move(board))));
  }
  return groups;
}

class ShmGroups : public ::testing::TestWithParam<int> {};

TEST_P(ShmGroups, CollectivesGiveTheContractsBits) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout), [](Group& group) {
    testing::check_collectives(group, testing::Memory::of_group);
    EXPECT_EQ(full(group).staging_nbytes(), 0u);
  });
}
TEST_P(ShmGroups, ForeignMemoryIsStagedAndGivesTheSameBits) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout), [](Group& group) {
    testing::check_collectives(group, testing::Memory::foreign);
    EXPECT_GT(full(group).staging_nbytes(), 0u);
  });
}
TEST_P(ShmGroups, RanksMayDifferInWhatTheyStage) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout), [](Group& group) {
    const auto memory = group.rank() == 0 ? testing::Memory::foreign : testing::Memory::of_group;
    testing::check_collectives(group, memory);
  });
}
TEST_P(ShmGroups, ChannelsRunIndependently) { testing::check_channels_are_independent(make, GetParam()); }
TEST_P(ShmGroups, PartsRunBesideEachOther) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout), testing::check_parts_beside_each_other);
}
TEST_P(ShmGroups, CollectivesOfPartsGiveTheContractsBits) {
  testing::run_ranks(make(GetParam(), kDefaultTimeout),
                     [](Group& group) { testing::check_collectives_of_parts(group, testing::Memory::of_group); });
}
INSTANTIATE_TEST_SUITE_P(Worlds, ShmGroups, ::testing::Values(1, 2, 3, 4));

TEST(ShmBoard, StagingOfLargeMemoryGoesInPieces) {
  testing::run_ranks(make(2, kDefaultTimeout), [](Group& group) {
    testing::check_all_gather(group, testing::Memory::foreign, (size_t{9} << 20) + 5, true);
    testing::check_reduce_scatter(group, testing::Memory::foreign,
                                  {DType::bf16, DType::f32, (3 << 20) + 7, false, 1.0f});
    testing::check_all_reduce(group, testing::Memory::foreign, DType::f32, (3 << 20) + 7);
    EXPECT_LE(full(group).staging_nbytes(), size_t{8} << 20);
  });
}

TEST(ShmBoard, RanksAtDifferentCollectivesAreNamed) { testing::check_different_collectives_are_named(make); }
TEST(ShmBoard, RanksWithDifferentSizesAreNamed) { testing::check_different_sizes_are_named(make); }
TEST(ShmBoard, AbortWakesEveryRankOnEveryChannel) { testing::check_abort_wakes_everyone(make); }
TEST(ShmBoard, AFailureThatIsWrittenDownIsHeardByEveryone) { testing::check_fate_is_heard_by_everyone(make); }
TEST(ShmBoard, TimeoutNamesTheRankThatDoesNotArrive) { testing::check_timeout_names_the_late_rank(make); }
TEST(ShmBoard, ARankThatLeavesIsNamedToThoseWhoWaitForIt) { testing::check_leaving_is_named(make, 0); }
TEST(ShmBoard, LeavingWithACollectiveInFlightFailsItsHandle) { testing::check_leaving_in_flight_does_not_hang(make); }

TEST(ShmBoard, PartsCanBeSplitAgain) { testing::run_ranks(make(4, kDefaultTimeout), testing::check_parts_of_parts); }
TEST(ShmBoard, RanksThatWantDifferentPartsAreNamed) { testing::check_different_parts_are_named(make); }
TEST(ShmBoard, WrongPartsAreAnErrorAndTheGroupGoesOn) {
  testing::run_ranks(make(2, kDefaultTimeout), testing::check_wrong_parts_are_an_error);
}
TEST(ShmBoard, ARankThatLeavesAPartIsNamedByItsNumberInTheWorld) { testing::check_leaving_a_part_is_named(make); }
TEST(ShmBoard, AbortInAPartWakesEveryRank) { testing::check_abort_in_a_part_wakes_everyone(make); }
TEST(ShmBoard, ADisagreementInAPartNamesRanksByTheirNumberInTheWorld) {
  testing::check_disagreement_in_a_part_is_named(make);
}
TEST(ShmBoard, TimeoutInAPartNamesTheRankThatHoldsAllUp) {
  testing::check_timeout_in_a_part_names_who_holds_all_up(make, std::chrono::milliseconds(2000));
}

}  // namespace
}  // namespace shoal
