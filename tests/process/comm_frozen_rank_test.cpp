// Real rank processes of which one is frozen (SIGSTOP): between steps, while the ranks join, while they open a channel,
// while they leave. The others end by themselves soon after the timeout and name it, over shared memory and over Gloo.
// Rank 0 serves the store in which ranks write why they stop: frozen, it answers nobody. A rank that was told to end by
// SIGTERM and only makes a note of it, as a trainer does, must end too. All worlds wait side by side.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "process/spawn.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace {

// Which call of listen() freezes this process when it is over; 0: none. Rank 0 listens for the store first; then, on
// every rank, each link of Gloo listens once: that of control, that of the world's own channel, those of other
// channels.
int frozen_at_listen() {
  const char* victim = std::getenv("TEST_VICTIM");
  const char* at = std::getenv("TEST_FROZEN_AT_LISTEN");
  const char* rank = std::getenv("RANK");
  if (victim == nullptr || at == nullptr || rank == nullptr || std::string(victim) != rank) return 0;
  return std::stoi(at);
}

std::atomic<int> listens{0};
std::atomic<bool> terminated{false};

}  // namespace

// Libtorch's calls end here and then in the C library: how a rank is frozen at a moment that only Gloo knows.
extern "C" int listen(int fd, int backlog) noexcept {
  const int result = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "listen"))(fd, backlog);
  if (++listens == frozen_at_listen()) {
    shoal::testing::say("freezing");
    raise(SIGSTOP);
  }
  return result;
}

namespace shoal {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Ranks;
using namespace std::chrono_literals;

constexpr auto kTimeout = 20s;  // ranks must have joined within it, dozens of them on two busy cores
constexpr auto kGrace = 30s;    // ten would do, were the machine idle

// ---- What the ranks do ----

std::unique_ptr<Group> join() {
  signal(SIGTERM, [](int) { terminated = true; });
  ProcessGroupOptions options;
  options.timeout = kTimeout;
  return make_process_group(options);
}

// Until an error.
int take_steps() {
  auto group = join();
  auto side = group->channel("weights");
  std::vector<float> data(static_cast<size_t>(std::stoi(std::getenv("TEST_NUMEL"))));
  const auto numel = static_cast<int64_t>(data.size());
  for (int64_t round = 0;; ++round) {
    side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, numel, 1.0f, nullptr}).wait();
    if (round == 3) testing::say("ready");
    std::this_thread::sleep_for(5ms);
  }
}

// The same in the parts of 2 x 2: most ranks wait for one that waits for the victim.
int take_steps_in_parts() {
  auto group = join();
  auto row = group->split("row", {{0, 1}, {2, 3}});
  auto column = group->split("column", {{0, 2}, {1, 3}});
  std::vector<float> data(64);
  for (int64_t round = 0;; ++round) {
    for (Group* part : {row.get(), column.get()}) {
      part->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, 64, 1.0f, nullptr}).wait();
    }
    if (round == 3) testing::say("ready");
    std::this_thread::sleep_for(5ms);
  }
}

// Ranks leave while one of them is frozen: nothing is left to do, so nothing is wrong.
int leave() {
  {
    auto group = join();
    auto side = group->channel("weights");
    side->barrier({"end", ""}).wait();
    if (std::to_string(group->rank()) == std::getenv("TEST_VICTIM")) {
      testing::say("freezing");
      raise(SIGSTOP);
    }
    std::this_thread::sleep_for(300ms);
  }
  std::printf("left\n");
  return 0;
}

// ---- What must come of it ----

struct Freezing {
  std::string transport;
  int world = 2;
  int victim = 0;
  std::string mode = "take_steps";
  int at_listen = 0;  // 0: when the victim has said "ready", or froze itself
  int numel = 64;

  std::string name() const {
    return transport + ", world " + std::to_string(world) + ", rank " + std::to_string(victim) + ", " + mode + ", " +
           std::to_string(at_listen) + ", " + std::to_string(numel);
  }
};

class Frozen {
 public:
  explicit Frozen(const Freezing& given) : given_(given) {
    std::map<std::string, std::string> env{{"SHOAL_TRANSPORT", given.transport},
                                           {"TEST_VICTIM", std::to_string(given.victim)},
                                           {"TEST_NUMEL", std::to_string(given.numel)}};
    if (given.at_listen > 0) env["TEST_FROZEN_AT_LISTEN"] = std::to_string(given.at_listen);
    ranks_ = std::make_unique<Ranks>(testing::RanksOptions{.world = given.world, .mode = given.mode, .env = env});
  }

  void freeze() {
    const bool by_itself = given_.at_listen > 0 || given_.mode == "leave";
    is_frozen_ = ranks_->wait_until_said(given_.victim, by_itself ? "freezing" : "ready");
    if (!by_itself) ranks_->kill(given_.victim, SIGSTOP);
    for (int rank = 0; rank < given_.world; ++rank) {
      if (rank != given_.victim && !by_itself) ranks_->kill(rank, SIGTERM);
    }
    watch_ = std::thread([this, frozen_at = std::chrono::steady_clock::now()] {
      for (int rank = 0; rank < given_.world; ++rank) {
        if (rank != given_.victim) ranks_->wait_for_end(rank);
      }
      took_ = std::chrono::steady_clock::now() - frozen_at;
    });
  }

  std::vector<Outcome> outcomes() {
    EXPECT_TRUE(is_frozen_);
    watch_.join();
    EXPECT_LT(took_, kTimeout + kGrace);
    ranks_->kill(given_.victim);
    return ranks_->wait();
  }

  const Freezing& given() const { return given_; }

 private:
  Freezing given_;
  std::unique_ptr<Ranks> ranks_;
  bool is_frozen_ = false;
  std::thread watch_;  // for the end of the others, while other worlds are begun and looked at
  std::chrono::steady_clock::duration took_{};
};

std::vector<std::unique_ptr<Frozen>> freeze(const std::vector<Freezing>& cases) {
  std::vector<std::unique_ptr<Frozen>> worlds;
  for (const Freezing& given : cases) worlds.push_back(std::make_unique<Frozen>(given));
  for (auto& world : worlds) world->freeze();
  return worlds;
}

// Every rank but the victim names it, and no other.
void expect_named(Frozen& frozen, const std::vector<std::string>& places) {
  SCOPED_TRACE(frozen.given().name());
  const auto outcomes = frozen.outcomes();
  for (int rank = 0; rank < frozen.given().world; ++rank) {
    if (rank == frozen.given().victim) continue;
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    const std::string victim = "rank " + std::to_string(frozen.given().victim);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    const auto is_said = [&](const std::string& place) {
      return outcome.output.find("[comm rank " + std::to_string(rank) + "] " + place) != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(places.begin(), places.end(), is_said)) << outcome.output;
    EXPECT_THAT(outcome.output,
                AnyOf(HasSubstr(victim + " did not arrive within 20 s"), HasSubstr("held up by " + victim + "."),
                      HasSubstr(victim + " hangs, or the network to it is cut"),
                      HasSubstr(victim + " did not come, hangs, or cannot be reached"),
                      HasSubstr(victim + " died or hangs: it joined the world and was not heard of")));
  }
}

TEST(FrozenRank, IsNamedWithTheCollectiveBetweenSteps) {
  std::vector<Freezing> cases;
  for (const int victim : {0, 1}) {
    for (const int world : {2, 3}) cases.push_back({"gloo", world, victim});
    cases.push_back({"shm", 3, victim});
  }
  cases.push_back({.transport = "gloo", .world = 3, .victim = 0, .numel = 1 << 21});  // sends that are under way
  for (const std::string transport : {"gloo", "shm"}) {
    cases.push_back({transport, 4, 3, "take_steps_in_parts"});
  }
  for (auto& world : freeze(cases)) {
    expect_named(*world, {"sum of block.3 (weights #", "sum of block.3 (row #", "sum of block.3 (column #"});
  }
}

// Who leaves needs nothing of the victim.
void expect_left(Frozen& frozen) {
  SCOPED_TRACE(frozen.given().name());
  const auto outcomes = frozen.outcomes();
  for (int rank = 0; rank < frozen.given().world; ++rank) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    if (rank == frozen.given().victim) continue;
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("left"));
  }
}

TEST(FrozenRank, IsNamedWhileRanksJoinOrOpenAChannelAndHoldsUpNobodyWhoLeaves) {
  // By the socket that the victim listened on last; how far the others have come by then is theirs to say.
  const std::vector<std::vector<std::string>> places{{"no rendezvous store at ", "joining the world: "},
                                                     {"connecting: ", "joining the world: "},
                                                     {"opening channel//0: ", "connecting: "},
                                                     {"opening channel/weights/0: ", "opening channel//0: "}};
  // The first is its door, rank 0's second the store.
  std::vector<Freezing> cases{{.transport = "shm", .world = 2, .victim = 0, .at_listen = 2},
                              {.transport = "gloo", .world = 3, .victim = 0, .at_listen = 5}};
  for (const int at_listen : {3, 4}) cases.push_back({"gloo", 2, 0, "take_steps", at_listen});
  for (const int at_listen : {2, 3, 4}) cases.push_back({"gloo", 3, 1, "take_steps", at_listen});
  for (const std::string transport : {"gloo", "shm"}) {
    for (const int victim : {0, 1}) cases.push_back({transport, 2, victim, "leave"});
  }
  for (auto& world : freeze(cases)) {
    if (world->given().mode == "leave") {
      expect_left(*world);
    } else {
      const int listen = world->given().at_listen - (world->given().victim == 0 ? 2 : 1);
      expect_named(*world, places.at(static_cast<size_t>(listen)));
    }
  }
}

}  // namespace

int run(int argc, char** argv) {
  return testing::rank_main(
      argc, argv, {{"take_steps", take_steps}, {"take_steps_in_parts", take_steps_in_parts}, {"leave", leave}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
