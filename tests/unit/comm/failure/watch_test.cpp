// Which collective of a stream is late, decided without a GPU.
#include "comm/failure/watch.h"

#include <gtest/gtest.h>

#include "unit/comm/fake_collective.h"

namespace shoal {
namespace {

using testing::FakeCollective;
using namespace std::chrono_literals;

const Watch::Time kStart{};

TEST(Watch, WhatHasNotBegunIsNotLateHoweverLongItWaits) {
  Watch watch(10s);
  const auto gather = std::make_shared<FakeCollective>();
  watch.add("gather of block.3 (weights #42)", gather);
  EXPECT_FALSE(watch.look(kStart + 1000s)->under_way);
  EXPECT_FALSE(watch.look(kStart + 1000s)->late);
  gather->begun = true;
  EXPECT_EQ(watch.look(kStart + 1001s)->under_way, 0ms);
  EXPECT_FALSE(watch.look(kStart + 1010s)->late);
  EXPECT_TRUE(watch.look(kStart + 1011s)->late);
}

TEST(Watch, TheOldestIsNamedAndTheOthersWaitForTheirTurn) {
  Watch watch(10s);
  const auto first = std::make_shared<FakeCollective>(true), second = std::make_shared<FakeCollective>(true);
  watch.add("gather of a (#1)", first);
  watch.add("gather of b (#2)", second);
  EXPECT_EQ(watch.look(kStart)->at, "gather of a (#1)");
  first->over = true;
  // Its time begins when it is seen to be the oldest.
  EXPECT_EQ(watch.look(kStart + 9s)->at, "gather of b (#2)");
  EXPECT_FALSE(watch.look(kStart + 18s)->late);
  EXPECT_TRUE(watch.look(kStart + 19s)->late);
}

TEST(Watch, WhatIsOverIsDroppedInOrder) {
  Watch watch(10s);
  std::vector<std::shared_ptr<FakeCollective>> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_shared<FakeCollective>(true));
    watch.add("#" + std::to_string(i), all.back());
  }
  all[0]->over = all[1]->over = true;
  EXPECT_EQ(watch.look(kStart)->at, "#2");
  EXPECT_EQ(all[0].use_count(), 1);
  EXPECT_EQ(all[1].use_count(), 1);
  EXPECT_EQ(all[2].use_count(), 2);
  all[2]->over = true;
  EXPECT_FALSE(watch.look(kStart));
  EXPECT_TRUE(watch.empty());
}

TEST(Watch, WhatAGpuSaysIsThrownAndTheOldestIsKnown) {
  Watch watch(10s);
  const auto gather = std::make_shared<FakeCollective>(true);
  gather->broken = true;
  watch.add("gather of a (#1)", gather);
  EXPECT_THROW(watch.look(kStart), std::runtime_error);
  EXPECT_EQ(watch.oldest(), "gather of a (#1)");
}

}  // namespace
}  // namespace shoal
