// Ranks on two hosts (see two_hosts.h): Gloo must find the right addresses, a rank that dies on the other host must be
// named, and what shared memory cannot do across hosts is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/spawn.h"
#include "process/two_hosts.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "unit/comm/collective_cases.h"

namespace shoal {
namespace {

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
  return testing::rank_main(argc, argv, {{"collectives", run_collectives}, {"lose_rank_one", lose_rank_one}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
