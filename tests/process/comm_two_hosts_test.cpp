// Two hosts, as two network namespaces of this machine that are joined by a cable of their own: Gloo must find the
// right addresses, and a rank that dies on the other host must be named. The namespaces have no names and belong to
// two holder processes that die with this one, so nothing is left behind, however the test ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "process/spawn.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "unit/comm/collective_cases.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::Ranks;
using namespace std::chrono_literals;

// A process that lives in a network namespace of its own.
class Holder {
 public:
  Holder() {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char error = static_cast<char>(unshare(CLONE_NEWNET) == 0 ? 0 : errno);
      if (write(ready[1], &error, 1) != 1 || error != 0) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char error = 0;
    if (read(ready[0], &error, 1) == 1 && error != 0) why_not_ = std::strerror(error);
    close(ready[0]);
  }
  ~Holder() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::vector<std::string> prefix() const { return {"nsenter", "-t", std::to_string(pid_), "-n"}; }
  bool run(const std::string& command) const {
    return std::system(("nsenter -t " + std::to_string(pid_) + " -n " + command + " >/dev/null 2>&1").c_str()) == 0;
  }
  pid_t pid() const { return pid_; }
  const std::string& why_not() const { return why_not_; }

 private:
  pid_t pid_ = -1;
  std::string why_not_;
};

struct TwoHosts {
  Holder first, second;

  // "" when the two can talk; otherwise why the test cannot run here.
  std::string connect() {
    if (!first.why_not().empty()) return "no network namespace can be made: " + first.why_not();
    const bool done = first.run("ip link add veth0 type veth peer name veth0 netns " + std::to_string(second.pid())) &&
                      first.run("ip addr add 10.213.7.1/24 dev veth0") && first.run("ip link set veth0 up") &&
                      second.run("ip addr add 10.213.7.2/24 dev veth0") && second.run("ip link set veth0 up") &&
                      first.run("ip link set lo up") && second.run("ip link set lo up");
    return done ? "" : "nsenter or ip cannot join two network namespaces here";
  }
};

int run_collectives() {
  auto group = make_process_group();
  std::printf("transport: %s\n", group->transport_name().c_str());
  testing::check_collectives(*group, testing::Memory::of_group);
  return 0;
}

int lose_rank_one() {
  auto group = make_process_group();
  group->barrier({"begin", ""}).wait();
  if (group->rank() == 1) {
    std::printf("ready\n");
    std::this_thread::sleep_for(1h);
  }
  group->barrier({"gather", "head"}).wait();
  return 0;
}

testing::RanksOptions options(const TwoHosts& hosts, const std::string& mode) {
  testing::RanksOptions options;
  options.world = 3;  // two on the first host, one on the second
  options.mode = mode;
  options.host = "10.213.7.1";
  options.env = {{"SHOAL_TRANSPORT", "gloo"}};
  options.prefix = [&hosts](int rank) { return rank == 1 ? hosts.second.prefix() : hosts.first.prefix(); };
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
  ASSERT_TRUE(ranks.wait_for_output(1, "ready"));
  ranks.kill(1);
  const auto outcomes = ranks.wait();
  EXPECT_THAT(outcomes[0].output, HasSubstr("[comm rank 0] gather of head (#2): rank 1 died"));
  EXPECT_THAT(outcomes[2].output, HasSubstr("[comm rank 2] gather of head (#2): rank 1 died"));
}

}  // namespace

int run(int argc, char** argv) {
  return testing::rank_main(argc, argv, {{"collectives", run_collectives}, {"lose_rank_one", lose_rank_one}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
