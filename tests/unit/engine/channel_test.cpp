#include "engine/channel.h"

#include <gtest/gtest.h>

#include "device/host_queue.h"

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

}  // namespace
}  // namespace shoal
