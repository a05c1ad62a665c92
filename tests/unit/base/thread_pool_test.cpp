#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

namespace shoal {
namespace {

TEST(ThreadPool, EveryElementIsWorkedOnOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t numel : {0, 1, 2, 7, 1000, 100'003}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(numel));
      pool.run(numel, 10, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
      });
      for (const std::atomic<int>& count : times) ASSERT_EQ(count, 1) << threads << " threads, " << numel;
    }
  }
}

TEST(ThreadPool, SeveralThreadsWorkAtATime) {
  ThreadPool pool(4);
  std::atomic<int> inside{0};
  pool.run(4, 1, [&](int64_t, int64_t) {
    ++inside;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (inside < 4 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 4);  // each waited for the others: none could have done two spans
}

TEST(ThreadPool, ALoopSmallerThanItsGrainStaysWithTheCaller) {
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  int spans = 0;
  pool.run(100, 100, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(end - begin, 100);
    ++spans;
  });
  EXPECT_EQ(spans, 1);
}

TEST(ThreadPool, TwoCallersHaveEachTheirWholeLoop) {
  ThreadPool pool(3);
  const auto call = [&] {
    for (int turn = 0; turn < 500; ++turn) {
      std::vector<int> touched(300, 0);
      pool.run(300, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
      });
      ASSERT_EQ(touched, std::vector<int>(300, 1)) << turn;
    }
  };
  std::thread other(call);
  call();
  other.join();
}

TEST(ThreadPool, ThrowsWhatASpanThrewAndGoesOnWorking) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(30, 1,
                        [](int64_t begin, int64_t) {
                          if (begin > 0) throw std::runtime_error("no");
                        }),
               std::runtime_error);
  std::atomic<int64_t> sum{0};
  pool.run(30, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 30);
}

}  // namespace
}  // namespace shoal
