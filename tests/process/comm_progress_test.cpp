// Ranks as processes that tell each other how far they are with collectives of GPUs, which are played here: who is late
// or stopped is named, over shared memory and over Gloo, also where it is rank 0, which serves the store.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/failure/progress_reports.h"
#include "comm/group/full_group.h"
#include "process/spawn.h"
#include "shoal/group.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kTimeout = 12s;  // also of joining, on a busy machine
constexpr auto kStuck = 8s;     // more than a rank may be silent

int play() {
  ProcessGroupOptions options;
  options.timeout = kTimeout;
  const auto world = make_process_group(options);
  ProgressReports* reports = full(*world).fate()->progress();
  const auto link = reports->open(7, "weights", world->members());
  link->issue({1, 11, "gather of block.1"});
  link->issue({2, 22, "gather of block.2"});
  std::this_thread::sleep_for(1s);  // some beats
  say("ready");
  if (world->rank() == std::stoi(std::getenv("TEST_VICTIM"))) {
    std::this_thread::sleep_for(60s);
    return 0;
  }
  link->issue({3, 33, "gather of block.3"});
  link->set_under_way(3, true);
  std::this_thread::sleep_for(kStuck);
  say(reports->cause(*link, 3));
  if (world->rank() == 0) std::this_thread::sleep_for(5s);  // the store ends with it, and others may still read there
  _exit(0);                                                 // who would wait for the victim here is not the question
}

TEST(Progress, WhoIsLateOrStoppedIsNamed) {
  struct Case {
    std::string transport;
    int victim;
    bool stopped;
    std::string said;
    std::unique_ptr<Ranks> ranks = {};
  };
  std::vector<Case> cases;
  for (const std::string transport : {"shm", "gloo"}) {
    cases.push_back(
        {transport, 1, false, "rank 1 did not arrive within 12 s, last at gather of block.2 (weights #2). Look"});
    cases.push_back({transport, 1, true,
                     "rank 1 did not arrive within 12 s, last at gather of block.2 (weights #2); nothing was heard of "
                     "rank 1 for"});
    cases.push_back({transport, 0, true, "rank 0 hangs, or the network to it is cut"});
  }
  for (Case& each : cases) {  // side by side
    each.ranks = std::make_unique<Ranks>(
        RanksOptions{.world = 3,
                     .mode = "play",
                     .env = {{"SHOAL_TRANSPORT", each.transport}, {"TEST_VICTIM", std::to_string(each.victim)}},
                     .limit = 120s});
  }
  for (Case& each : cases) {
    if (each.stopped && each.ranks->wait_until_said(each.victim, "ready")) each.ranks->kill(each.victim, SIGSTOP);
  }
  for (Case& each : cases) {
    SCOPED_TRACE(fmt::format("{}, rank {} {}", each.transport, each.victim, each.stopped ? "stopped" : "late"));
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != each.victim) each.ranks->wait_for_end(rank);
    }
    each.ranks->kill(each.victim);
    const std::vector<Outcome> outcomes = each.ranks->wait();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == each.victim) continue;
      EXPECT_THAT(outcomes[static_cast<size_t>(rank)].output, HasSubstr(each.said));
    }
  }
}

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::rank_main(argc, argv, {{"play", shoal::testing::play}}); }
