#include "engine/channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

#include "comm/host/board_carrier.h"
#include "comm/host/thread_board.h"
#include "comm/world/channel_group.h"
#include "device/host_queue.h"
#include "message_of.h"

namespace shoal {
namespace {

TEST(Channel, InHostMemoryOneGroupCarriesNotesAndBytes) {
  const std::unique_ptr<Group> world = make_single_group();
  const std::unique_ptr<Queue> queue = make_host_queue();
  const Channel channel(*world, "weights", *queue);
  EXPECT_EQ(&channel.notes(), &channel.bytes());
  EXPECT_EQ(channel.queue().device(), -1);
  channel.bytes().barrier({"meet", "all"}).wait();
  EXPECT_EQ(channel.traffic().collectives, 1u);
  EXPECT_EQ(channel.waited_seconds(), 0.0);
}

TEST(Channel, HostMemoryIsRefusedWhereOnlyNcclWillDo) {
  const auto world = std::make_shared<ThreadWorld>(std::chrono::seconds(10));
  auto board = std::make_unique<ThreadBoard>(world, Members::all(1, 0), "");
  ChannelGroup group(std::make_unique<BoardCarrier>(std::move(board)), std::make_shared<Worker>(), Transport::nccl);
  const std::unique_ptr<Queue> queue = make_host_queue();
  EXPECT_EQ(
      testing::message_of([&] { Channel(group, "weights", *queue); }),
      "[config shoal.transport] nccl carries memory of GPUs, and this model is in host memory. Train on a GPU, or "
      "use auto.");
}

// AddressSanitizer sees it when the queue is gone.
TEST(Channel, ItsQueueOutlivesACollectiveUnderWay) {
  const auto worlds = make_thread_groups(1);
  const std::unique_ptr<Queue> queue = make_host_queue();
  auto channel = std::make_unique<Channel>(*worlds[0], "gradients", *queue);
  std::vector<float> whole{3, 4}, shard(2);
  double sums = 0;
  std::latch reduced(1);
  ReduceScatter reduce;
  reduce.subject = {"reduce", "head"};
  reduce.whole = whole.data();
  reduce.shard = shard.data();
  reduce.shard_numel = 2;
  reduce.after = [&, results = &channel->queue()] {
    reduced.count_down();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the channel is being destroyed meanwhile
    results->sum_squares(shard.data(), DType::f32, 2, 0, &sums);
  };
  channel->bytes().reduce_scatter(std::move(reduce));
  reduced.wait();
  channel.reset();
  EXPECT_EQ(sums, 25.0);
}

}  // namespace
}  // namespace shoal
