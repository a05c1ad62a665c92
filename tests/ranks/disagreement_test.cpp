// Ranks that part ways: another order of units, another config or model, a rank that gives up, hangs or does something
// alone. Every rank must end, soon, with a message that names the rank, the unit, the collective and its number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "training/faulty_run.h"

namespace shoal::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

struct Ending {
  std::string message;  // empty: it ended well
  RunResult result;
};

// Every rank to its own end; nobody aborts for another.
std::vector<Ending> end_of(int world, const FaultyRun& run, Timeout timeout = kDefaultTimeout) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(world, timeout);
  std::vector<Ending> endings(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      try {
        endings[at].result = train_with_fault(*groups[at], run);
      } catch (const std::exception& error) {
        endings[at].message = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - started, 120s);
  return endings;
}

void expect_peers_say(const std::vector<Ending>& endings, int faulty, const std::string& place,
                      const std::string& cause) {
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    if (rank == faulty) continue;
    EXPECT_THAT(endings[static_cast<size_t>(rank)].message, ContainsRegex(said_by(rank, place, cause)));
  }
}

void side_by_side(const std::vector<int>& worlds, const std::function<void(int world)>& act) {
  std::vector<std::thread> threads;
  for (const int world : worlds) threads.emplace_back([&act, world] { act(world); });
  for (std::thread& thread : threads) thread.join();
}

class Disagreement : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  int faulty() const { return world() - 1; }
  std::string faulty_name() const { return "rank " + std::to_string(faulty()); }
  FaultyRun run(Fault fault) const { return {.fault = fault, .faulty_rank = faulty()}; }

  void expect_peers_say(const std::vector<Ending>& endings, const std::string& place, const std::string& cause) const {
    testing::expect_peers_say(endings, faulty(), place, cause);
  }
};

TEST_P(Disagreement, AnotherOrderOfUnitsAfterTheFirstPassIsNamedOnEveryRank) {
  const auto endings = end_of(world(), run(Fault::another_order));
  expect_peers_say(endings, "gather of twice", faulty_name() + R"( is at gather of drop \(weights #[0-9]+\) instead)");
  EXPECT_THAT(endings.back().message,
              ContainsRegex(
                  said_by(faulty(), "gather of drop", R"(rank 0 is at gather of twice \(weights #[0-9]+\) instead)")));
}

TEST_P(Disagreement, AnotherOrderOfUnitsIsNamedThroughPrefetchesToo) {
  FaultyRun ahead = run(Fault::another_order);
  ahead.prefetch = 1'000'000;
  expect_peers_say(end_of(world(), ahead), "gather of [a-z]+",
                   faulty_name() + R"( is at gather of [a-z]+ \(weights #[0-9]+\) instead)");
}

// A first pass has no order yet: the ranks settle each gather together, and see at the end of forward that they differ.
TEST_P(Disagreement, AnotherOrderInTheFirstPassIsNamedOnEveryRank) {
  for (const bool overlap : {true, false}) {
    FaultyRun astray = run(Fault::another_order_first);
    astray.overlap = overlap;
    for (const Ending& ending : end_of(world(), astray)) {
      EXPECT_EQ(ending.message,
                "[unit drop] rank 0 uses it before sometimes and " + faulty_name() +
                    " after it. Make every rank use units in the same order; a rank may leave units out.");
    }
  }
}

// Below stage 3 nothing is gathered in forward, and an order of its own does no harm.
TEST_P(Disagreement, AnotherOrderBelowStageThreeGivesTheSameBitsAtEveryStage) {
  FaultyRun own = run(Fault::another_order_always);
  own.stage = 0;
  const auto expected = end_of(world(), own);
  for (const int stage : {1, 2}) {
    own.stage = stage;
    const auto endings = end_of(world(), own);
    for (size_t rank = 0; rank < endings.size(); ++rank) {
      EXPECT_EQ(endings[rank].message, "");
      EXPECT_EQ(endings[rank].result.norms.size(), 2u * kFaultyStep);
      EXPECT_TRUE(endings[rank].result == expected[rank].result) << "stage " << stage << " rank " << rank;
    }
  }
}

TEST_P(Disagreement, AnotherConfigIsSaidOnEveryRank) {
  for (const Fault fault : {Fault::another_config, Fault::another_stage}) {
    for (const Ending& ending : end_of(world(), run(fault))) {
      EXPECT_THAT(ending.message,
                  HasSubstr("the ranks disagree: " + faulty_name() + " has another config than rank 0"));
    }
  }
}

TEST_P(Disagreement, AnotherModelIsSaidOnEveryRank) {
  for (const Ending& ending : end_of(world(), run(Fault::another_model))) {
    EXPECT_THAT(ending.message, HasSubstr("the ranks disagree: " + faulty_name() + " has another model than rank 0"));
  }
}

// Where only time tells, since the group of a rank that gives up on its engine lives on. Long enough for a busy
// machine; the worlds wait side by side.
constexpr Timeout kShort = 6s;

TEST(DisagreementInTime, ARankWhoseModelIsRefusedLeavesTheOthersAtTheComparison) {
  side_by_side({2, 3}, [](int world) {
    const int faulty = world - 1;
    const auto endings = end_of(world, {.fault = Fault::no_model, .faulty_rank = faulty}, kShort);
    EXPECT_THAT(endings.back().message, HasSubstr("[unit drop] is declared twice"));
    expect_peers_say(endings, faulty, "compare models and configs of all units",
                     "rank " + std::to_string(faulty) + " did not arrive within 6 s");
  });
}

TEST(DisagreementInTime, ARankThatHangsIsNamed) {
  side_by_side({2, 3}, [](int world) {
    const int faulty = world - 1;
    const auto endings =
        end_of(world, {.fault = Fault::hangs, .faulty_rank = faulty, .pause = kShort + Timeout(2s)}, kShort);
    const std::string cause = "rank " + std::to_string(faulty) + " did not arrive within 6 s";
    expect_peers_say(endings, faulty, "gather of sometimes", cause);
    EXPECT_THAT(endings.back().message, ContainsRegex(said_by(faulty, "gather of sometimes", cause)));
  });
}

TEST_P(Disagreement, ARankThatThrowsInForwardAndDestroysItsEngineIsNamed) {
  for (const int64_t prefetch : {0, 1'000'000}) {
    FaultyRun thrown = run(Fault::throws_in_forward);
    thrown.prefetch = prefetch;
    const auto endings = end_of(world(), thrown);
    EXPECT_EQ(endings.back().message, "the user's data ended");
    expect_peers_say(endings, prefetch == 0 ? "gather of sometimes" : "gather of [a-z]+", faulty_name() + " left");
  }
}

TEST_P(Disagreement, ARankThatThrowsInBackwardAndDestroysItsEngineIsNamed) {
  for (const int stage : {0, 1, 2, 3}) {
    FaultyRun thrown = run(Fault::throws_in_backward);
    thrown.stage = stage;
    thrown.prefetch = 1'000'000;
    const auto endings = end_of(world(), thrown);
    EXPECT_THAT(endings.back().message, HasSubstr("the user's data ended"));
    expect_peers_say(endings, stage == 3 ? "(gather|reduce) of [a-z]+" : "reduce of [a-z]+", faulty_name() + " left");
  }
}

TEST_P(Disagreement, ARankThatStopsEarlyIsNamed) {
  expect_peers_say(end_of(world(), run(Fault::stops_early)), "gather of embed", faulty_name() + " left");
}

TEST_P(Disagreement, ARankThatEvaluatesAloneIsNamed) {
  expect_peers_say(end_of(world(), run(Fault::evaluates_alone)), "gather of embed",
                   faulty_name() + R"( is at agree on the next unit of first pass \(weights #[0-9]+\) instead)");
}

TEST_P(Disagreement, ARankThatGathersForTheUserAloneIsNamed) {
  expect_peers_say(end_of(world(), run(Fault::gathers_alone)), "gather of embed",
                   faulty_name() + R"( is at gather for the user of twice \(weights #[0-9]+\) instead)");
}

INSTANTIATE_TEST_SUITE_P(Threads, Disagreement, ::testing::Values(2, 3),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace
}  // namespace shoal::testing
