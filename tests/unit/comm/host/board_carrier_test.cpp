// The collectives over a Board, where the board decides what must be staged. (The grid of sizes and dtypes over real
// boards is in thread_board_test and shm_board_test.)
#include "comm/host/board_carrier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/collective_cases.h"
#include "comm/host/shm_board.h"
#include "comm/world/channel_group.h"
#include "unit/comm/memory_store.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

testing::Groups shm_groups(int world) {
  const auto store = std::make_shared<testing::MemoryStore>();
  testing::Groups groups;
  for (int rank = 0; rank < world; ++rank) {
    ShmWorld::Options options;
    options.rank = rank;
    options.pids.assign(static_cast<size_t>(world), getpid());
    options.store = store;
    groups.push_back(std::make_unique<ChannelGroup>(
        std::make_unique<BoardCarrier>(std::make_unique<ShmBoard>(std::make_shared<ShmWorld>(options)))));
  }
  return groups;
}

TEST(BoardCarrier, StagesNoMoreThanThePieceThatWasAskedFor) {
  testing::run_ranks(shm_groups(3), [](Group& group) {
    testing::check_reduce_scatter(group, testing::Memory::foreign, {DType::f32, DType::f32, 10'001, false, 1.0f, 3000});
    EXPECT_GT(full(group).staging_nbytes(), 0u);
    EXPECT_LE(full(group).staging_nbytes(), 3000u * 4);
  });
}

TEST(BoardCarrier, AnExchangeHandsOverThePeersOwnMemory) {
  std::vector<std::vector<int>> brought(2, std::vector<int>{0, 1});
  testing::run_ranks(make_thread_groups(2), [&](Group& group) {
    Exchange args;
    args.subject = {"exchange", "x"};
    args.slices = brought[static_cast<size_t>(group.rank())].data();
    args.slice_nbytes = sizeof(int);
    args.take = [&](const Exchange::Part& part) {
      for (size_t rank = 0; rank < 2; ++rank)
        EXPECT_EQ(part.sources[rank], &brought[rank][static_cast<size_t>(group.rank())]);
    };
    group.exchange(args).wait();
  });
}

TEST(BoardCarrier, ResultsDoNotDependOnTheCut) {
  testing::run_ranks(shm_groups(2), [](Group& group) {
    for (const int64_t piece : {0, 1, 33, 1000, 5000}) {
      testing::check_reduce_scatter(group, testing::Memory::foreign, {DType::bf16, DType::bf16, 1023, true, 0, piece});
    }
  });
}

TEST(BoardCarrier, AnAllReduceOfFewerElementsThanRanksWorks) {
  testing::run_ranks(shm_groups(4), [](Group& group) {
    for (const int64_t numel : {0, 1, 2, 3, 5}) {
      testing::check_all_reduce(group, testing::Memory::of_group, DType::f32, numel);
    }
    // Beyond the small form, with a short last slice.
    testing::check_all_reduce(group, testing::Memory::of_group, DType::f16, 20'001);
  });
}

}  // namespace
}  // namespace shoal
