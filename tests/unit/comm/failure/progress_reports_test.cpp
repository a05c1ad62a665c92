// Notes through a store, ranks as objects of this process.
#include "comm/failure/progress_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "unit/comm/memory_store.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::MemoryStore;
using ::testing::StartsWith;
using namespace std::chrono_literals;

IssuedCollective gather(uint64_t sequence, const std::string& unit) {
  return {sequence, std::hash<std::string>{}(unit), "gather of " + unit};
}

struct RankReports {
  RankReports(const std::shared_ptr<KeyStore>& store, int rank, Timeout timeout = 1s) {
    ProgressReports::Options options;
    options.rank = rank;
    options.timeout = timeout;
    options.store = store;
    options.other_path = [this](const std::string& at, const std::string& cause) {
      const std::lock_guard lock(mutex);
      found = at + ": " + cause;
    };
    reports = std::make_unique<ProgressReports>(std::move(options));
    link = reports->open(7, "weights", {0, 1});
  }
  std::string found_within(Timeout limit) {
    for (const auto deadline = std::chrono::steady_clock::now() + limit;;) {
      {
        const std::lock_guard lock(mutex);
        if (!found.empty() || std::chrono::steady_clock::now() >= deadline) return found;
      }
      std::this_thread::sleep_for(2ms);
    }
  }

  std::mutex mutex;
  std::string found;
  std::unique_ptr<ProgressReports> reports;  // ends first
  std::shared_ptr<ProgressReports::Link> link;
};

// Asks until somebody is blamed.
std::string blamed(RankReports& rank, uint64_t sequence) {
  for (const auto deadline = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < deadline;) {
    if (std::string cause = rank.reports->cause(*rank.link, sequence); !cause.empty()) return cause;
    std::this_thread::sleep_for(5ms);
  }
  return "nobody";
}

TEST(ProgressReports, TellWhoDidNotCome) {
  const auto store = std::make_shared<MemoryStore>();
  RankReports first(store, 0), second(store, 1);
  first.link->issue(gather(1, "a"));
  second.link->issue(gather(1, "a"));
  first.link->issue(gather(2, "b"));
  first.link->set_under_way(2, true);
  EXPECT_THAT(blamed(first, 2), StartsWith("rank 1 did not arrive within 1 s"));
}

TEST(ProgressReports, TellWhoLeftAlsoWhenItIsGone) {
  const auto store = std::make_shared<MemoryStore>();
  RankReports first(store, 0);
  {
    RankReports second(store, 1);
    second.link->issue(gather(1, "a"));
    second.link->leave();
  }
  first.link->issue(gather(1, "a"));
  first.link->issue(gather(2, "b"));
  EXPECT_THAT(blamed(first, 2), StartsWith("rank 1 left, last at gather of a (weights #1)"));
}

TEST(ProgressReports, ARankThatFallsSilentIsFoundSo) {
  const auto store = std::make_shared<MemoryStore>();
  RankReports first(store, 0, 200ms);
  {
    RankReports second(store, 1, 200ms);
    second.link->issue(gather(1, "a"));
  }
  first.link->issue(gather(1, "a"));
  first.link->set_under_way(1, true);
  EXPECT_THAT(blamed(first, 1), StartsWith("rank 1 came to it and hangs"));
}

TEST(ProgressReports, RanksOnDifferentPathsAreFoundThoughNothingIsStuck) {
  const auto store = std::make_shared<MemoryStore>();
  RankReports first(store, 0), second(store, 1);
  first.link->issue(gather(1, "a"));
  second.link->issue(gather(1, "b"));
  EXPECT_THAT(first.found_within(60s),
              HasSubstr("gather of a (weights #1): rank 1 came to gather of b (weights #1) where rank 0 came to gather "
                        "of a: the ranks run different units"));
  EXPECT_THAT(second.found_within(60s), HasSubstr("rank 0 came to gather of a"));
}

TEST(ProgressReports, AStoreThatIsGoneBlamesNobody) {
  const auto store = std::make_shared<MemoryStore>();
  RankReports first(store, 0);
  first.link->issue(gather(1, "a"));
  store->gone();
  EXPECT_EQ(first.reports->cause(*first.link, 1), "");
}

}  // namespace
}  // namespace shoal
