// Ranks of one GPU over NCCL of which one is killed, stopped, late, on another path or gone: every other ends within
// the timeout and names that rank, the unit and the collective. Prints what was said.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "device/cuda_queue.h"
#include "nccl/nccl_ranks.h"

namespace shoal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kWorld = 3;
constexpr const char* kTimeoutMs = "8000";
constexpr double kSoonSeconds = 60;  // with loading, connecting and the timeout

// Gathers block.0, block.1, ...; at block.3 the victim does what TEST_HOW says.
int gather_blocks() {
  const std::string how = std::getenv("TEST_HOW");
  const auto world = join_world();
  const bool is_victim = world->rank() == std::stoi(std::getenv("TEST_VICTIM"));
  const auto queue = make_cuda_queue(gpu().index(), nullptr);
  auto weights = full(*world).device_channel("weights", gpu().index(), queue->stream());
  const bool in_part = std::string(std::getenv("TEST_IN_PART")) == "yes";
  if (in_part) weights = weights->split("half", {{0}, {1, 2}});
  const auto alarm = full(*weights).alarm();
  queue->heed(alarm);
  const auto memory =
      queue->allocate(4096 * static_cast<size_t>(world->size() + 1), std::make_shared<Ledger>(), MemoryKind::staging);
  const auto gather = [&](const std::string& unit) {
    AllGather args;
    args.subject = {"gather", unit};
    args.shard = memory->data();
    args.whole = memory->data() + 4096;
    args.shard_nbytes = 4096;
    weights->all_gather(args).wait_over();
  };
  for (int block = 0; block < 3; ++block) gather(fmt::format("block.{}", block));
  say("ready");
  if (is_victim && (how == "kill" || how == "stop")) std::this_thread::sleep_for(600s);  // the test acts
  if (is_victim && how == "sleep") std::this_thread::sleep_for(40s);
  if (is_victim && how == "leave") {
    weights.reset();
    std::this_thread::sleep_for(30s);
    return 0;
  }
  if (is_victim && how == "throw") {
    world->abort("the disk is full");
    std::this_thread::sleep_for(5s);
    return 0;
  }
  // The other path has the same bytes: NCCL itself would mix them.
  gather(is_victim && how == "path" ? "block.4" : "block.3");
  for (int block = 5; block < 400; ++block) {
    gather(fmt::format("block.{}", block));
    std::this_thread::sleep_for(50ms);
  }
  return 0;
}

struct Case {
  std::string how;
  int victim;
  std::vector<std::string> said;  // by every other rank
  bool in_part = false;           // ranks 1 and 2 gather, and rank 0 alone
};

class NcclFailure : public ::testing::TestWithParam<Case> {};

TEST_P(NcclFailure, EndsAllRanksAndNamesTheOne) {
  SHOAL_NEEDS_GPU();
  const Case& the_case = GetParam();
  Ranks ranks(gpu_ranks(kWorld, "gather", "nccl",
                        {{"TEST_HOW", the_case.how},
                         {"TEST_VICTIM", std::to_string(the_case.victim)},
                         {"TEST_TIMEOUT_MS", kTimeoutMs},
                         {"TEST_IN_PART", the_case.in_part ? "yes" : "no"}}));
  for (int rank = 0; rank < kWorld; ++rank) ASSERT_TRUE(ranks.wait_until_said(rank, "ready")) << "rank " << rank;
  const auto begin = std::chrono::steady_clock::now();
  if (the_case.how == "kill") ranks.kill(the_case.victim);
  if (the_case.how == "stop") ranks.kill(the_case.victim, SIGSTOP);
  std::vector<int> others;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank != the_case.victim) others.push_back(rank);
  }
  for (const int rank : others) ranks.wait_for_end(rank);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ranks.kill(the_case.victim);
  const std::vector<Outcome> outcomes = ranks.wait();
  EXPECT_LT(seconds, kSoonSeconds);
  for (const int rank : others) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    if (the_case.in_part && rank == 0) continue;  // nothing of its part is missing
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    for (const std::string& text : the_case.said) EXPECT_THAT(outcome.output, HasSubstr(text));
    EXPECT_THAT(outcome.output, HasSubstr(the_case.in_part ? "(half of weights #" : "(weights #"));
    const size_t at = outcome.output.find("[comm rank ");
    fmt::print(
        "{:<6} {:>5.1f} s  {}\n", the_case.how, seconds,
        at == std::string::npos ? outcome.output : outcome.output.substr(at, outcome.output.find('\n', at) - at));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, NcclFailure,
    ::testing::Values(
        Case{"kill", 1, {"gather of block.3", "rank 1 died (process"}},
        Case{"stop", 1, {"gather of block.3", "rank 1 did not arrive within 8 s", "nothing was heard of rank 1"}},
        // With rank 0 the store stands still in which ranks tell how far they are.
        Case{"stop", 0, {"gather of block.3", "rank 0 hangs, or the network to it is cut"}},
        Case{"kill", 0, {"gather of block.3", "rank 0 died (process"}},
        Case{"sleep", 1, {"gather of block.3", "rank 1 did not arrive within 8 s, last at gather of block.2"}},
        Case{"leave", 1, {"gather of block.3", "rank 1 left"}}, Case{"throw", 1, {"rank 1 gave up: the disk is full"}},
        // By its number in the world, which in its part is 1.
        Case{"kill", 2, {"gather of block.3", "rank 2 died (process"}, true},
        Case{"stop", 2, {"gather of block.3", "rank 2 did not arrive within 8 s"}, true},
        Case{"path", 1, {"rank 1 came to gather of block.4", "came to gather of block.3"}}),
    [](const auto& info) { return info.param.how + std::to_string(info.param.victim); });

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) {
  return shoal::testing::rank_main(argc, argv, {{"gather", shoal::testing::gather_blocks}});
}
