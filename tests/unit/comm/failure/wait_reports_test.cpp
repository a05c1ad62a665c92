#include "comm/failure/wait_reports.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "unit/comm/memory_store.h"

namespace shoal {
namespace {

using namespace std::chrono_literals;
using testing::MemoryStore;

TEST(WaitReports, AWaitThatLastsIsReportedAgainAndAgainAndItsEndOnce) {
  MemoryStore store;
  std::atomic<bool> waiting{true};
  const WaitReports reports(store, 2, [&] {
    return waiting ? std::vector<WaitReports::Wait>{{7, 3}} : std::vector<WaitReports::Wait>{};
  });
  const auto next = [&](const std::string& before) {
    for (const auto deadline = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < deadline;) {
      const std::string now = store.get("waits/2").value_or("");
      if (now != before) return now;
      std::this_thread::sleep_for(5ms);
    }
    return std::string("nothing came");
  };
  const std::string first = next("");
  EXPECT_EQ(first.substr(first.find(' ')), " 3");
  const std::string second = next(first);
  EXPECT_EQ(second.substr(second.find(' ')), " 3");
  waiting = false;
  for (std::string now = second; now.find(' ') != std::string::npos;) now = next(now);
}

TEST(WaitReports, BlameFollowsReportsThatAreRenewed) {
  MemoryStore store;
  std::atomic<bool> ended{false};
  store.set("waits/2", "first 3");
  std::thread renewing([&] {
    for (int look = 0; !ended; ++look) {
      store.set("waits/2", std::to_string(look) + " 3");
      std::this_thread::sleep_for(5ms);
    }
  });
  EXPECT_EQ(to_blame_by_reports(store, {2}), std::vector<int>{3});
  EXPECT_EQ(to_blame_by_reports(store, {1}), std::vector<int>{1});
  ended = true;
  renewing.join();
  EXPECT_EQ(to_blame_by_reports(store, {2}, 100ms), std::vector<int>{2}) << "who reports no more hangs itself";
}

TEST(WaitReports, WithoutAStoreTheMissingAreToBlame) {
  MemoryStore store;
  store.gone();
  EXPECT_EQ(to_blame_by_reports(store, {1, 2}), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace shoal
