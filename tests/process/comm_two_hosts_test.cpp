// Ranks on two hosts (see two_hosts.h): Gloo must find the right addresses, a rank that dies on the other host must be
// named, a cut cable must end all ranks, and what shared memory cannot do across hosts is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/collective_cases.h"
#include "process/spawn.h"
#include "process/two_hosts.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Ranks;
using testing::TwoHosts;
using namespace std::chrono_literals;

int run_collectives() {
  auto group = make_process_group();
  testing::say("transport: " + group->transport_name());
  testing::check_collectives(*group, testing::Memory::of_group);
  return 0;
}

int lose_rank_one() {
  auto group = make_process_group();
  group->barrier({"begin", ""}).wait();
  if (group->rank() == 1) {
    testing::say("ready");
    std::this_thread::sleep_for(1h);
  }
  group->barrier({"gather", "head"}).wait();
  return 0;
}

// Until an error.
int take_steps() {
  ProcessGroupOptions options;
  options.timeout = 6s;
  auto group = make_process_group(options);
  auto side = group->channel("weights");
  std::vector<float> data(64);
  for (int64_t round = 0;; ++round) {
    side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, 64, 1.0f, nullptr}).wait();
    if (round == 3) testing::say("ready");
    std::this_thread::sleep_for(5ms);
  }
}

testing::RanksOptions options(const TwoHosts& hosts, const std::string& mode) {
  testing::RanksOptions options;
  options.world = 3;  // two on the first host, one on the second
  options.mode = mode;
  options.host = TwoHosts::kFirstAddress;
  options.env = {{"SHOAL_TRANSPORT", "gloo"}};
  options.prefix = hosts.prefix({0, 1, 0});
  return options;
}

TEST(TwoHosts, CollectivesGiveTheContractsBits) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  for (const Outcome& outcome : Ranks(options(hosts, "collectives")).wait()) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("transport: gloo"));
  }
}

TEST(TwoHosts, ARankKilledOnTheOtherHostIsNamed) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  Ranks ranks(options(hosts, "lose_rank_one"));
  ASSERT_TRUE(ranks.wait_until_said(1, "ready"));
  ranks.kill(1);
  const auto outcomes = ranks.wait();
  EXPECT_THAT(outcomes[0].output, HasSubstr("[comm rank 0] gather of head (#2): rank 1 died"));
  EXPECT_THAT(outcomes[2].output, HasSubstr("[comm rank 2] gather of head (#2): rank 1 died"));
}

// The store is on the first host: to the rank on the second it is as silent as the others.
TEST(TwoHosts, ACutCableEndsEveryRankAndNamesTheOneBeyondIt) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  Ranks ranks(options(hosts, "take_steps"));
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(ranks.wait_until_said(rank, "ready"));
  ASSERT_TRUE(hosts.cut());
  const auto cut = std::chrono::steady_clock::now();
  const auto outcomes = ranks.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - cut, 36s);  // the timeout is six
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("[comm rank " + std::to_string(rank) + "] sum of block.3 (weights #"));
    if (rank != 1) {
      EXPECT_THAT(outcome.output, HasSubstr("rank 1 did not arrive within 6 s"));
    } else {  // what rank 0 sent may have come through, and what rank 2 sent not
      EXPECT_THAT(outcome.output, AnyOf(HasSubstr("rank 0 did not arrive within 6 s"),
                                        HasSubstr("rank 0 hangs, or the network to it is cut")));
    }
  }
}

TEST(TwoHosts, SharedMemoryAcrossHostsIsRefusedOnEveryRank) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  if (const std::string why = hosts.give_second_its_own_kernel(); !why.empty()) GTEST_SKIP() << why;
  testing::RanksOptions shm = options(hosts, "collectives");
  shm.env["SHOAL_TRANSPORT"] = "shm";
  const auto outcomes = Ranks(shm).wait();
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].exit_code, 3);
    EXPECT_THAT(outcomes[rank].output, HasSubstr("[comm rank " + std::to_string(rank) +
                                                 "] shared memory was asked for, but the ranks are on several hosts. "
                                                 "Use SHOAL_TRANSPORT=gloo."));
  }
}

TEST(TwoHosts, AutomaticTakesGlooAcrossHosts) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  if (const std::string why = hosts.give_second_its_own_kernel(); !why.empty()) GTEST_SKIP() << why;
  testing::RanksOptions automatic = options(hosts, "collectives");
  automatic.env["SHOAL_TRANSPORT"] = "auto";
  for (const Outcome& outcome : Ranks(automatic).wait()) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("transport: gloo"));
  }
}

}  // namespace

int run(int argc, char** argv) {
  return testing::rank_main(
      argc, argv, {{"collectives", run_collectives}, {"lose_rank_one", lose_rank_one}, {"take_steps", take_steps}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
