#include "comm/group/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace shoal {
namespace {

TEST(Worker, DoesJobsInOrderOnAThreadOfItsOwn) {
  std::vector<int> done;
  std::thread::id where;
  {
    Worker worker;
    for (int i = 0; i < 5; ++i) {
      worker.add([&, i] {
        done.push_back(i);
        where = std::this_thread::get_id();
      });
    }
  }
  EXPECT_THAT(done, ::testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Worker, ItsEndWaitsForTheJobsThatItHas) {
  std::atomic<bool> done{false};
  {
    Worker worker;
    worker.add([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace shoal
