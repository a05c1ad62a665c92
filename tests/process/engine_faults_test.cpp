// Real rank processes that die, hang, give up or disagree in the middle of training, over shared memory and over Gloo:
// every living rank ends within seconds, with a message that names the rank, the unit, the collective and its number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "process/spawn.h"
#include "shoal/error.h"
#include "training/faulty_run.h"

namespace shoal::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kGaveUp = 4;

// CLOCK_MONOTONIC, the same for all processes of the machine.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::stoi(text);
}

// ---- What the ranks do ----

int train_with_fault() {
  ProcessGroupOptions options;
  if (const int ms = number_of("TEST_TIMEOUT_MS"); ms > 0) options.timeout = Timeout(ms);
  auto world = make_process_group(options);
  FaultyRun run;
  run.fault = static_cast<Fault>(number_of("TEST_FAULT"));
  run.faulty_rank = number_of("TEST_FAULTY_RANK");
  run.stage = number_of("TEST_STAGE");
  run.prefetch = number_of("TEST_PREFETCH");
  run.pause = 2 * options.timeout;
  run.settle = 1500ms;
  run.announce = [] { std::printf("fault at %.6f\n", now()); };
  try {
    const RunResult result = FaultyTraining(*world, run).train();
    std::printf("bits %016llx\n", static_cast<unsigned long long>(result.hash()));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    // A user's program that gives up on training, and lives on: its peers hear of it all the same.
    std::printf("gave up: %s\n", error.what());
    std::this_thread::sleep_for(4s);
    return kGaveUp;
  }
  return 0;
}

// ---- What must come of it ----

struct FaultCase {
  Fault fault = Fault::none;
  int faulty_rank = 2;
  int world = 3;
  int stage = 3;
  int64_t prefetch = 0;
  int timeout_ms = 0;  // 0: the default, which no test lives to see
};

class EngineFaults : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<Outcome> end_of(const FaultCase& given) {
    case_ = given;
    Ranks ranks({.world = given.world,
                 .mode = "train_with_fault",
                 .env = {{"SHOAL_TRANSPORT", GetParam()},
                         {"TEST_FAULT", std::to_string(static_cast<int>(given.fault))},
                         {"TEST_FAULTY_RANK", std::to_string(given.faulty_rank)},
                         {"TEST_STAGE", std::to_string(given.stage)},
                         {"TEST_PREFETCH", std::to_string(given.prefetch)},
                         {"TEST_TIMEOUT_MS", std::to_string(given.timeout_ms)}},
                 .limit = 120s});
    std::vector<Outcome> outcomes = ranks.wait();
    const double ended = now();
    outputs_.clear();
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      const bool in_time = outcomes[rank].signal != SIGKILL || static_cast<int>(rank) == given.faulty_rank;
      EXPECT_TRUE(in_time) << "rank " << rank << " did not end by itself";
      outputs_ += "--- rank " + std::to_string(rank) + ":\n" + outcomes[rank].output;
    }
    std::smatch found;
    if (std::regex_search(outputs_, found, std::regex("fault at ([0-9.]+)"))) {
      EXPECT_LT(ended - std::stod(found[1]), 30.0) << outputs_;  // the default timeout is ten minutes
    }
    return outcomes;
  }

  // The peers of the faulty rank are at one place, with one number, and blame the right rank. With prefetch the rank
  // may stop in the middle of a collective, and over Gloo one peer may have its part of it and another not.
  void expect_peers_say(const std::vector<Outcome>& outcomes, const std::string& place,
                        const std::string& cause) const {
    std::string number;
    for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
      if (rank == case_.faulty_rank) continue;
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << outputs_;
      EXPECT_THAT(outcome.output, ContainsRegex(said_by(rank, place, cause))) << outputs_;
      std::smatch found;
      ASSERT_TRUE(std::regex_search(outcome.output, found, std::regex(R"(\((weights|gradients) #([0-9]+)\))")))
          << outputs_;
      if (number.empty()) number = found[0];
      if (case_.prefetch == 0) {
        EXPECT_EQ(found[0], number) << outputs_;
      }
    }
  }
  std::string faulty_name() const { return "rank " + std::to_string(case_.faulty_rank); }

  FaultCase case_;
  std::string outputs_;
};

TEST_P(EngineFaults, ARankKilledInForwardIsNamed) {
  for (const FaultCase& given : {FaultCase{Fault::killed_in_forward, 0}, FaultCase{Fault::killed_in_forward, 2},
                                 FaultCase{Fault::killed_in_forward, 1, 2}}) {
    const auto outcomes = end_of(given);
    EXPECT_EQ(outcomes[static_cast<size_t>(given.faulty_rank)].signal, SIGKILL);
    expect_peers_say(outcomes, "gather of sometimes", faulty_name() + " died");
  }
}

TEST_P(EngineFaults, ARankKilledInBackwardIsNamed) {
  for (const int stage : {0, 2}) {
    const auto outcomes = end_of({.fault = Fault::killed_in_backward, .faulty_rank = 1, .stage = stage});
    EXPECT_EQ(outcomes[1].signal, SIGKILL);
    expect_peers_say(outcomes, "reduce of drop", "rank 1 died");
  }
}

TEST_P(EngineFaults, ARankKilledInARecomputedForwardIsNamed) {
  const auto outcomes = end_of({.fault = Fault::killed_in_recompute, .faulty_rank = 2});
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  expect_peers_say(outcomes, "gather of embed", "rank 2 died");
}

TEST_P(EngineFaults, ARankKilledWhileItWaitsInACollectiveIsNamed) {
  for (const int victim : {0, 2}) {
    const auto outcomes = end_of({.fault = Fault::killed_in_collective, .faulty_rank = victim});
    EXPECT_EQ(outcomes[static_cast<size_t>(victim)].signal, SIGKILL);
    expect_peers_say(outcomes, "gather of sometimes", faulty_name() + " died");
  }
}

TEST_P(EngineFaults, ARankKilledWhileGathersRunAheadIsNamed) {
  const auto outcomes = end_of({.fault = Fault::killed_in_forward, .faulty_rank = 1, .prefetch = 1'000'000});
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  expect_peers_say(outcomes, "gather of [a-z]+", "rank 1 died");
}

TEST_P(EngineFaults, AnotherOrderOfUnitsAfterTheFirstPassIsNamed) {
  const auto outcomes = end_of({.fault = Fault::another_order, .faulty_rank = 1});
  expect_peers_say(outcomes, "gather of twice", R"(rank 1 is at gather of drop \(weights #[0-9]+\) instead)");
  EXPECT_EQ(outcomes[1].exit_code, 3);
  EXPECT_THAT(outcomes[1].output, ContainsRegex(R"(\[comm rank 1\] gather of drop \(weights #[0-9]+\): )"));
}

TEST_P(EngineFaults, AnotherOrderOfUnitsInTheFirstPassIsSaidOnEveryRank) {
  for (const Outcome& outcome : end_of({.fault = Fault::another_order_first, .faulty_rank = 1})) {
    EXPECT_EQ(outcome.exit_code, 3) << outputs_;
    EXPECT_THAT(outcome.output, HasSubstr("[unit drop] rank 0 uses it before sometimes and rank 1 after it."));
  }
}

TEST_P(EngineFaults, AnotherConfigOrModelIsSaidOnEveryRank) {
  for (const Fault fault : {Fault::another_config, Fault::another_stage, Fault::another_model}) {
    const std::string what = fault == Fault::another_model ? "model" : "config";
    for (const Outcome& outcome : end_of({.fault = fault, .faulty_rank = 1})) {
      EXPECT_EQ(outcome.exit_code, 3);
      EXPECT_THAT(outcome.output,
                  HasSubstr("[engine] the ranks disagree: rank 1 has another " + what + " than rank 0"));
    }
  }
}

TEST_P(EngineFaults, ARankWhoseModelIsRefusedEndsTheOthersToo) {
  for (const int faulty : {0, 2}) {
    const auto outcomes = end_of({.fault = Fault::no_model, .faulty_rank = faulty});
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << outputs_;
      if (rank == faulty) {
        EXPECT_THAT(outcome.output, HasSubstr("[unit drop] is declared twice"));
      } else {
        EXPECT_THAT(outcome.output,
                    ContainsRegex("opening .*rank " + std::to_string(faulty) + " (died|left)|weights.*rank " +
                                  std::to_string(faulty) + " (died|left)"))
            << outputs_;
      }
    }
  }
}

TEST_P(EngineFaults, ARankThatThrowsAndDestroysItsEngineIsNamedWhileItLives) {
  for (const int64_t prefetch : {0, 1'000'000}) {
    const auto outcomes = end_of({.fault = Fault::throws_in_forward, .faulty_rank = 2, .prefetch = prefetch});
    EXPECT_EQ(outcomes[2].exit_code, kGaveUp) << outputs_;
    expect_peers_say(outcomes, prefetch == 0 ? "gather of sometimes" : "gather of [a-z]+", "rank 2 left");
  }
  const auto outcomes = end_of({.fault = Fault::throws_in_backward, .faulty_rank = 0, .stage = 2});
  EXPECT_EQ(outcomes[0].exit_code, kGaveUp) << outputs_;
  expect_peers_say(outcomes, "reduce of drop", "rank 0 left");
}

TEST_P(EngineFaults, ARankThatHangsIsNamedAfterTheTimeout) {
  const auto outcomes = end_of({.fault = Fault::hangs, .faulty_rank = 1, .timeout_ms = 4000});
  expect_peers_say(outcomes, "gather of sometimes", "rank 1 did not arrive within 4 s");
  // When it comes at last, it hears what happened meanwhile; over Gloo from rank 0, if that is still there.
  EXPECT_EQ(outcomes[1].exit_code, 3);
  EXPECT_THAT(outcomes[1].output,
              ContainsRegex(said_by(1, "gather of sometimes", "rank (1 did not arrive within 4 s|0 died .or left)")));
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineFaults, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

int run(int argc, char** argv) { return rank_main(argc, argv, {{"train_with_fault", train_with_fault}}); }

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
