// Real rank processes that die, hang, give up or disagree in the middle of training, over shared memory and over Gloo:
// every living rank ends within seconds, with a message that names the rank, the unit, the collective and its number.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <regex>
#include <thread>

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

int play_rank() {
  ProcessGroupOptions options;
  if (const int ms = number_of("TEST_TIMEOUT_MS"); ms > 0) options.timeout = Timeout(ms);
  auto world = make_process_group(options);
  FaultyRun run;
  run.fault = static_cast<Fault>(number_of("TEST_FAULT"));
  run.faulty_rank = number_of("TEST_FAULTY_RANK");
  run.stage = number_of("TEST_STAGE");
  run.prefetch = number_of("TEST_PREFETCH");
  if (const int ranks = number_of("TEST_SHARD_SIZE"); ranks > 0) run.shard_size = ranks;
  run.pause = options.timeout + 3s;
  run.settle = 2500ms;
  run.announce = [] { say(fmt::format("fault at {:.6f}", now())); };
  try {
    const RunResult result = train_with_fault(*world, run);
    say(fmt::format("bits {:016x}", result.hash()));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    // A user's program that gives up on training, and lives on: its peers hear of it all the same.
    say(fmt::format("gave up: {}", error.what()));
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
  int shard_size = 0;  // 0: over all ranks
};

// How the ranks of one case ended.
struct Ended {
  FaultCase given;
  std::vector<Outcome> outcomes;
  std::string outputs;  // of all ranks

  const Outcome& faulty() const { return outcomes[static_cast<size_t>(given.faulty_rank)]; }
  std::string faulty_name() const { return "rank " + std::to_string(given.faulty_rank); }
};

class EngineFaults : public ::testing::TestWithParam<const char*> {
 protected:
  // The worlds of the cases run side by side: most of their time they wait.
  static std::vector<Ended> ends_of(const std::vector<FaultCase>& cases) {
    std::vector<std::unique_ptr<Ranks>> worlds;
    for (const FaultCase& given : cases) {
      worlds.push_back(
          std::make_unique<Ranks>(RanksOptions{.world = given.world,
                                               .mode = "train_with_fault",
                                               .env = {{"SHOAL_TRANSPORT", GetParam()},
                                                       {"TEST_FAULT", std::to_string(static_cast<int>(given.fault))},
                                                       {"TEST_FAULTY_RANK", std::to_string(given.faulty_rank)},
                                                       {"TEST_STAGE", std::to_string(given.stage)},
                                                       {"TEST_PREFETCH", std::to_string(given.prefetch)},
                                                       {"TEST_TIMEOUT_MS", std::to_string(given.timeout_ms)},
                                                       {"TEST_SHARD_SIZE", std::to_string(given.shard_size)}},
                                               .limit = 300s}));
    }
    std::vector<Ended> ends;
    for (size_t at = 0; at < cases.size(); ++at) ends.push_back(end_of(*worlds[at], cases[at]));
    return ends;
  }
  static Ended end_of(const FaultCase& given) { return ends_of({given}).front(); }

  static Ended end_of(Ranks& ranks, const FaultCase& given) {
    Ended ended{given, ranks.wait(), ""};
    const double last = now();
    for (size_t rank = 0; rank < ended.outcomes.size(); ++rank) {
      const bool in_time = ended.outcomes[rank].signal != SIGKILL || static_cast<int>(rank) == given.faulty_rank;
      EXPECT_TRUE(in_time) << "rank " << rank << " did not end by itself";
      ended.outputs += "--- rank " + std::to_string(rank) + ":\n" + ended.outcomes[rank].output;
    }
    for (const std::string& line : lines_said(ended.outputs)) {
      std::smatch found;
      if (!std::regex_match(line, found, std::regex("fault at ([0-9.]+)"))) continue;
      EXPECT_LT(last - std::stod(found[1]), 120.0) << ended.outputs;  // the default timeout is ten minutes
    }
    return ended;
  }

  // The peers of the faulty rank are at one place, with one number, and blame the right rank. With prefetch the rank
  // may stop in the middle of a collective, and over Gloo one peer may have its part of it and another not.
  static void expect_peers_say(const Ended& ended, const std::string& place, const std::string& cause) {
    std::string number;
    for (int rank = 0; rank < static_cast<int>(ended.outcomes.size()); ++rank) {
      if (rank == ended.given.faulty_rank) continue;
      const Outcome& outcome = ended.outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << ended.outputs;
      EXPECT_THAT(outcome.output, ContainsRegex(said_by(rank, place, cause))) << ended.outputs;
      std::smatch found;
      ASSERT_TRUE(std::regex_search(outcome.output, found, std::regex(R"(\((weights|gradients) #([0-9]+)\))")))
          << ended.outputs;
      if (number.empty()) number = found[0];
      if (ended.given.prefetch == 0) {
        EXPECT_EQ(found[0], number) << ended.outputs;
      }
    }
  }
};

TEST_P(EngineFaults, ARankKilledInForwardIsNamed) {
  for (const Ended& ended :
       ends_of({{Fault::killed_in_forward, 0}, {Fault::killed_in_forward, 2}, {Fault::killed_in_forward, 1, 2}})) {
    EXPECT_EQ(ended.faulty().signal, SIGKILL);
    expect_peers_say(ended, "gather of sometimes", ended.faulty_name() + " died");
  }
}

TEST_P(EngineFaults, ARankKilledInBackwardIsNamed) {
  for (const Ended& ended : ends_of({{.fault = Fault::killed_in_backward, .faulty_rank = 1, .stage = 0},
                                     {.fault = Fault::killed_in_backward, .faulty_rank = 1, .stage = 2}})) {
    EXPECT_EQ(ended.faulty().signal, SIGKILL);
    expect_peers_say(ended, "reduce of drop", "rank 1 died");
  }
}

TEST_P(EngineFaults, ARankKilledInARecomputedForwardIsNamed) {
  const Ended ended = end_of({.fault = Fault::killed_in_recompute, .faulty_rank = 2});
  EXPECT_EQ(ended.faulty().signal, SIGKILL);
  expect_peers_say(ended, "gather of embed", "rank 2 died");
}

TEST_P(EngineFaults, ARankKilledInAGroupOfRanksIsNamedByItsNumberInTheWorld) {
  // In a gather that the group makes alone, and in a reduction of all ranks.
  for (const Ended& ended :
       ends_of({{.fault = Fault::killed_in_forward, .faulty_rank = 3, .world = 4, .shard_size = 2},
                {.fault = Fault::killed_in_forward, .faulty_rank = 0, .world = 4, .shard_size = 2},
                {.fault = Fault::killed_in_backward, .faulty_rank = 1, .world = 4, .stage = 2, .shard_size = 2}})) {
    EXPECT_EQ(ended.faulty().signal, SIGKILL);
    const bool in_gather = ended.given.fault == Fault::killed_in_forward;
    const int beside = ended.given.faulty_rank ^ 1;  // the other one of its group
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == ended.given.faulty_rank) continue;
      const Outcome& outcome = ended.outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << ended.outputs;
      EXPECT_THAT(outcome.output, ContainsRegex("comm rank " + std::to_string(rank))) << ended.outputs;
      EXPECT_THAT(outcome.output, HasSubstr(ended.faulty_name() + " died")) << ended.outputs;
      if (in_gather && rank != beside) continue;  // has its unit, and waits for a reduction
      EXPECT_THAT(outcome.output, ContainsRegex(in_gather ? "gather of sometimes .shard of weights #[0-9]+."
                                                          : "reduce of drop .all ranks of gradients #[0-9]+."))
          << ended.outputs;
    }
  }
}

TEST_P(EngineFaults, ARankKilledWhileItWaitsInACollectiveIsNamed) {
  for (const Ended& ended : ends_of({{Fault::killed_in_collective, 0}, {Fault::killed_in_collective, 2}})) {
    EXPECT_EQ(ended.faulty().signal, SIGKILL);
    expect_peers_say(ended, "gather of sometimes", ended.faulty_name() + " died");
  }
}

TEST_P(EngineFaults, ARankKilledWhileGathersRunAheadIsNamed) {
  const Ended ended = end_of({.fault = Fault::killed_in_forward, .faulty_rank = 1, .prefetch = 1'000'000});
  EXPECT_EQ(ended.faulty().signal, SIGKILL);
  expect_peers_say(ended, "gather of [a-z]+", "rank 1 died");
}

TEST_P(EngineFaults, AnotherOrderOfUnitsAfterTheFirstPassIsNamed) {
  const Ended ended = end_of({.fault = Fault::another_order, .faulty_rank = 1});
  expect_peers_say(ended, "gather of twice", R"(rank 1 is at gather of drop \(weights #[0-9]+\) instead)");
  EXPECT_EQ(ended.faulty().exit_code, 3);
  EXPECT_THAT(ended.faulty().output, ContainsRegex(R"(\[comm rank 1\] gather of drop \(weights #[0-9]+\): )"));
}

TEST_P(EngineFaults, AnotherOrderOfUnitsInTheFirstPassIsSaidOnEveryRank) {
  const Ended ended = end_of({.fault = Fault::another_order_first, .faulty_rank = 1});
  for (const Outcome& outcome : ended.outcomes) {
    EXPECT_EQ(outcome.exit_code, 3) << ended.outputs;
    EXPECT_THAT(outcome.output, HasSubstr("[unit drop] rank 0 uses it before sometimes and rank 1 after it."));
  }
}

TEST_P(EngineFaults, AnotherConfigOrModelIsSaidOnEveryRank) {
  for (const Ended& ended :
       ends_of({{Fault::another_config, 1}, {Fault::another_stage, 1}, {Fault::another_model, 1}})) {
    const std::string what = ended.given.fault == Fault::another_model ? "model" : "config";
    for (const Outcome& outcome : ended.outcomes) {
      EXPECT_EQ(outcome.exit_code, 3);
      EXPECT_THAT(outcome.output,
                  HasSubstr("[engine] the ranks disagree: rank 1 has another " + what + " than rank 0"));
    }
  }
}

TEST_P(EngineFaults, ARankWhoseModelIsRefusedEndsTheOthersToo) {
  for (const Ended& ended : ends_of({{Fault::no_model, 0}, {Fault::no_model, 2}})) {
    const std::string gone = ended.faulty_name() + " (died|left)";
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome& outcome = ended.outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << ended.outputs;
      if (rank == ended.given.faulty_rank) {
        EXPECT_THAT(outcome.output, HasSubstr("[unit drop] is declared twice"));
      } else {
        EXPECT_THAT(outcome.output, ContainsRegex("opening .*" + gone + "|weights.*" + gone)) << ended.outputs;
      }
    }
  }
}

TEST_P(EngineFaults, ARankThatThrowsAndDestroysItsEngineIsNamedWhileItLives) {
  for (const Ended& ended : ends_of({{.fault = Fault::throws_in_forward, .faulty_rank = 2},
                                     {.fault = Fault::throws_in_forward, .faulty_rank = 2, .prefetch = 1'000'000},
                                     {.fault = Fault::throws_in_backward, .faulty_rank = 0, .stage = 2}})) {
    EXPECT_EQ(ended.faulty().exit_code, kGaveUp) << ended.outputs;
    const std::string place = ended.given.fault == Fault::throws_in_backward ? "reduce of drop"
                              : ended.given.prefetch == 0                    ? "gather of sometimes"
                                                                             : "gather of [a-z]+";
    expect_peers_say(ended, place, ended.faulty_name() + " left");
  }
}

TEST_P(EngineFaults, ARankThatHangsIsNamedAfterTheTimeout) {
  const Ended ended = end_of({.fault = Fault::hangs, .faulty_rank = 1, .timeout_ms = 5000});
  expect_peers_say(ended, "gather of sometimes", "rank 1 did not arrive within 5 s");
  // When it comes at last, it hears what happened meanwhile; over Gloo from rank 0, if that is still there.
  EXPECT_EQ(ended.faulty().exit_code, 3);
  EXPECT_THAT(ended.faulty().output,
              ContainsRegex(said_by(1, "gather of sometimes", "rank (1 did not arrive within 5 s|0 died .or left)")));
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineFaults, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

int run(int argc, char** argv) { return rank_main(argc, argv, {{"train_with_fault", play_rank}}); }

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
