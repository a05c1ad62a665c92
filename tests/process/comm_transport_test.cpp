// Ranks as processes over shared memory and over Gloo: the same bits as ranks as threads, and the same messages when a
// rank dies, hangs, leaves or goes astray. Every ending must come within seconds on every living rank; the default
// timeout is ten minutes, so a bound of two minutes tells, and leaves room for a busy machine.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <memory>

#include "collectives/collective_cases.h"
#include "comm/group/full_group.h"
#include "comm/rendezvous/c10d_store.h"
#include "comm/world/peer_record.h"
#include "process/spawn.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace {

// Whether this process is to die at that call.
bool dies_at(const std::string& call) {
  const char* victim = std::getenv("TEST_VICTIM");
  const char* where = std::getenv("TEST_DIES_AT");
  const char* rank = std::getenv("RANK");
  return victim != nullptr && where != nullptr && rank != nullptr && std::string(victim) == rank && call == where;
}

std::atomic<int> listens{0};
// After the rank's door, and rank 0's store.
bool gloo_listens() { return listens > (std::string(std::getenv("RANK")) == "0" ? 2 : 1); }

}  // namespace

// Libtorch's calls end here and then in the C library: how a rank dies at a moment that only Gloo knows.
extern "C" int listen(int fd, int backlog) noexcept {
  ++listens;
  if (dies_at("listen") && gloo_listens()) raise(SIGKILL);
  return reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "listen"))(fd, backlog);
}
extern "C" int connect(int fd, const sockaddr* address, socklen_t length) {
  const auto* place = reinterpret_cast<const sockaddr_in*>(address);
  if (dies_at("connect") && gloo_listens() && ntohs(place->sin_port) != std::stoi(std::getenv("MASTER_PORT"))) {
    raise(SIGKILL);
  }
  return reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"))(fd, address, length);
}

namespace shoal {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Ranks;
using namespace std::chrono_literals;

std::unique_ptr<Group> join() {
  ProcessGroupOptions options;
  if (const char* ms = std::getenv("TEST_TIMEOUT_MS")) options.timeout = Timeout(std::stoi(ms));
  return make_process_group(options);
}

constexpr auto kSoon = 120s;
// Joining counts too, and must be done by then on a busy machine. Worlds that wait for it wait side by side.
constexpr const char* kTimeoutMs = "6000";

// ---- What the ranks do ----

int join_and_wait();

int run_collectives() {
  if (std::getenv("TEST_JOIN_ONLY") != nullptr && std::string(std::getenv("RANK")) == "1") return join_and_wait();
  auto group = join();
  testing::say("transport: " + group->transport_name());
  testing::check_collectives(*group, testing::Memory::of_group);
  testing::check_collectives(*group, group->rank() == 0 ? testing::Memory::foreign : testing::Memory::of_group, true);
  auto side = group->channel("side");
  testing::check_collectives(*side, testing::Memory::foreign);
  return 0;
}

size_t shoal_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:shoal") != std::string::npos;
  return count;
}

int let_go_of_memory() {
  {
    auto group = join();
    const size_t at_start = shoal_mappings();
    for (int round = 0; round < 3; ++round) {
      auto slab = full(*group).allocate(1 << 16, std::make_shared<Ledger>(), MemoryKind::weights);
      const size_t shard = (1 << 16) / static_cast<size_t>(group->size());
      std::byte* own = slab->data() + shard * static_cast<size_t>(group->rank());
      group->all_gather({{"gather", "x"}, own, slab->data(), shard, slab}).wait();
      EXPECT_EQ(shoal_mappings(), at_start + static_cast<size_t>(group->size()));
      slab.reset();
      full(*group).forget_peer_memory();
      EXPECT_EQ(shoal_mappings(), at_start);
    }
  }
  EXPECT_EQ(shoal_mappings(), 0u);
  return 0;
}

int two_worlds() {
  auto first = join();
  auto second = join();
  testing::check_all_reduce(*second, testing::Memory::of_group, DType::bf16, 5000);
  testing::check_all_reduce(*first, testing::Memory::of_group, DType::f32, 11);
  first->barrier({"end", ""}).wait();
  second->barrier({"end", ""}).wait();
  return 0;
}

void print_all_reduced(Group& group) {
  std::vector<float> data(5001);
  testing::fill(data.data(), DType::f32, 5001, group.rank(), 9);
  group.all_reduce({{"sum", "x"}, data.data(), DType::f32, 5001, 1.0f / 3.0f, nullptr}).wait();
  uint32_t bits = 0;
  for (const float value : data) bits = bits * 31 + std::bit_cast<uint32_t>(value);
  testing::say(fmt::format("bits: {:08x}", bits));
}

int print_bits() {
  auto group = join();
  print_all_reduced(*group);
  group->barrier({"end", ""}).wait();
  return 0;
}

// Rank TEST_VICTIM says "ready" and then waits to be killed; where, says TEST_WHERE.
int lose_a_rank() {
  auto group = join();
  auto side = group->channel("weights");
  const int victim = std::stoi(std::getenv("TEST_VICTIM"));
  const std::string where = std::getenv("TEST_WHERE");
  side->barrier({"begin", ""}).wait();
  std::vector<float> data(where == "streaming" ? 1 << 20 : 64);
  const auto numel = static_cast<int64_t>(data.size());
  for (int64_t round = 0; where == "streaming"; ++round) {  // until an error, or death at any point of it
    side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, numel, 1.0f, nullptr}).wait();
    if (round == 5 && group->rank() == victim) testing::say("ready");
  }
  if (group->rank() == victim) {
    if (where == "inside") side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, 64, 1.0f, nullptr});
    std::this_thread::sleep_for(100ms);
    testing::say("ready");
    std::this_thread::sleep_for(1h);
  }
  // Inside: one of the others comes late, so the victim is killed while it waits in the collective.
  if (where == "inside" && group->rank() == (victim == 0 ? 1 : 0)) std::this_thread::sleep_for(1s);
  side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, 64, 1.0f, nullptr}).wait();
  // In the collective itself the victim may have done its part already; then the next one finds it gone.
  side->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, 64, 1.0f, nullptr}).wait();
  return 0;
}

// In 2 x 2 the ranks sum over one axis and then the other until one is killed at any point of it.
int lose_a_rank_of_a_part() {
  auto group = join();
  auto row = group->split("row", {{0, 1}, {2, 3}});
  auto column = group->split("column", {{0, 2}, {1, 3}});
  std::vector<float> data(5000);
  const auto numel = static_cast<int64_t>(data.size());
  for (int64_t round = 0;; ++round) {
    row->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, numel, 1.0f, nullptr}).wait();
    column->all_reduce({{"sum", "block.3"}, data.data(), DType::f32, numel, 1.0f, nullptr}).wait();
    if (round == 5) testing::say("ready");
  }
}

int stop_together() {
  auto group = join();
  auto side = group->channel("weights");
  const std::string how = std::getenv("TEST_HOW");
  side->barrier({"begin", ""}).wait();
  const bool last = group->rank() == group->size() - 1;
  if (how == "abort by rank 0" && group->rank() == 0) {
    group->abort("no space left");
    return 4;  // and ends at once, with the store that it serves
  }
  if (last && how == "abort") group->abort("loss is not a number");
  if (last && how == "leave") side.reset();
  if (last && (how == "leave" || how == "hang")) std::this_thread::sleep_for(1h);  // lives, until the test kills it
  side->barrier({last && how == "astray" ? "reduce" : "gather", "head"}).wait();
  return 0;
}

// Joins the world as a rank does, and says no more.
int join_and_wait() {
  TcpStoreOptions tcp;
  tcp.host = std::getenv("MASTER_ADDR");
  tcp.port = std::stoi(std::getenv("MASTER_PORT"));
  PeerRecord record;
  record.wanted = Transport::shared_memory;
  record.world = std::stoi(std::getenv("WORLD_SIZE"));
  std::ifstream("/proc/sys/kernel/random/boot_id") >> record.boot_id;
  record.pid = getpid();
  record.address = "127.0.0.1";
  connect_tcp_store(tcp)->under("shoal//0")->set(std::string("rank/") + std::getenv("RANK"), to_text(record));
  testing::say("ready");
  std::this_thread::sleep_for(1h);
  return 0;
}

// ---- What must come of it ----

class Transports : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
  std::map<std::string, std::string> env(std::map<std::string, std::string> more = {}) const {
    more["SHOAL_TRANSPORT"] = transport();
    return more;
  }
};

std::unique_ptr<Ranks> start(const testing::RanksOptions& options) { return std::make_unique<Ranks>(options); }

void expect_all_good(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_P(Transports, CollectivesGiveTheContractsBits) {
  const auto outcomes = Ranks({.world = world(), .mode = "collectives", .env = env()}).wait();
  expect_all_good(outcomes);
  EXPECT_THAT(outcomes[0].output, HasSubstr(transport() == "shm" ? "transport: shared memory" : "transport: gloo"));
}

TEST_P(Transports, TwoWorldsInOneProcessDoNotMix) {
  expect_all_good(Ranks({.world = world(), .mode = "two_worlds", .env = env()}).wait());
}

TEST_P(Transports, AKilledRankIsNamedByAllOthersWithinSeconds) {
  for (const std::string where : {"before", "inside", "streaming"}) {
    std::map<int, std::unique_ptr<Ranks>> worlds;  // by the victim
    for (const int victim : {0, world() - 1}) {
      worlds[victim] = start({.world = world(),
                              .mode = "lose_a_rank",
                              .env = env({{"TEST_VICTIM", std::to_string(victim)}, {"TEST_WHERE", where}})});
    }
    for (const auto& [victim, ranks] : worlds) {
      SCOPED_TRACE(where + ", rank " + std::to_string(victim));
      ASSERT_TRUE(ranks->wait_until_said(victim, "ready"));
      const auto killed = std::chrono::steady_clock::now();
      ranks->kill(victim);
      const auto outcomes = ranks->wait();
      EXPECT_LT(std::chrono::steady_clock::now() - killed, kSoon);
      for (int rank = 0; rank < world(); ++rank) {
        if (rank == victim) continue;
        const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
        EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
        EXPECT_THAT(outcome.output, HasSubstr("[comm rank " + std::to_string(rank) + "] sum of block.3 (weights #"));
        EXPECT_THAT(outcome.output, HasSubstr("rank " + std::to_string(victim) + " died"));
      }
    }
  }
}

TEST(Transport, ARankKilledInAPartIsNamedByItsNumberInTheWorld) {
  std::map<std::pair<std::string, int>, std::unique_ptr<Ranks>> worlds;
  for (const auto& name : {std::pair<std::string, int>{"shm", 3}, {"gloo", 0}, {"gloo", 3}}) {
    worlds[name] = start({.world = 4, .mode = "lose_a_rank_of_a_part", .env = {{"SHOAL_TRANSPORT", name.first}}});
  }
  for (const auto& [name, ranks] : worlds) {
    ASSERT_TRUE(ranks->wait_until_said(name.second, "ready"));
    ranks->kill(name.second);
  }
  const auto killed = std::chrono::steady_clock::now();
  for (const auto& [name, ranks] : worlds) {
    const auto& [transport, victim] = name;
    SCOPED_TRACE(transport + ", rank " + std::to_string(victim));
    const auto outcomes = ranks->wait();
    EXPECT_LT(std::chrono::steady_clock::now() - killed, kSoon);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr("[comm rank " + std::to_string(rank) + "] sum of block.3 ("));
      EXPECT_THAT(outcome.output, AnyOf(HasSubstr("(row #"), HasSubstr("(column #")));
      EXPECT_THAT(outcome.output, HasSubstr("rank " + std::to_string(victim) + " died"));
    }
  }
}

// Where only time tells: worlds of 2 and 3 over both transports, which wait side by side.
TEST(Transport, ARankThatNeverComesIsNamed) {
  std::map<std::string, std::unique_ptr<Ranks>> worlds;
  for (const std::string transport : {"shm", "gloo"}) {
    for (const int world : {2, 3}) {
      worlds[transport + std::to_string(world)] =
          start({.world = world,
                 .mode = "collectives",
                 .env = {{"SHOAL_TRANSPORT", transport}, {"TEST_TIMEOUT_MS", kTimeoutMs}},
                 .absent = {world - 1}});
    }
  }
  for (const auto& [name, ranks] : worlds) {
    SCOPED_TRACE(name);
    const auto outcomes = ranks->wait();
    const size_t absent = outcomes.size() - 1;
    for (size_t rank = 0; rank < absent; ++rank) {
      EXPECT_THAT(outcomes[rank].output,
                  AnyOf(HasSubstr("joining the world: rank " + std::to_string(absent) + " did not arrive within 6 s"),
                        HasSubstr("joining the world: rank " + std::to_string(absent) + " had not arrived when")));
    }
  }
}

TEST(Transport, ARankThatHangsIsNamed) {
  std::map<std::string, std::unique_ptr<Ranks>> worlds;
  for (const std::string transport : {"shm", "gloo"}) {
    for (const int world : {2, 3}) {
      worlds[transport + std::to_string(world)] =
          start({.world = world,
                 .mode = "stop_together",
                 .env = {{"SHOAL_TRANSPORT", transport}, {"TEST_HOW", "hang"}, {"TEST_TIMEOUT_MS", kTimeoutMs}}});
    }
  }
  for (const auto& [name, ranks] : worlds) {
    SCOPED_TRACE(name);
    const int last = name.back() - '1';
    for (int rank = 0; rank < last; ++rank) ranks->wait_for_end(rank);
    ranks->kill(last);
    const auto outcomes = ranks->wait();
    for (int rank = 0; rank < last; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
      EXPECT_THAT(outcome.output,
                  HasSubstr("[comm rank " + std::to_string(rank) + "] gather of head (weights #2): rank " +
                            std::to_string(last) + " did not arrive within 6 s"));
    }
  }
}

TEST_P(Transports, ARankZeroThatNeverComesIsNamed) {
  const auto outcomes =
      Ranks({.world = world(), .mode = "collectives", .env = env({{"TEST_TIMEOUT_MS", "1500"}}), .absent = {0}}).wait();
  EXPECT_THAT(outcomes[1].output, HasSubstr("[comm rank 1] no rendezvous store at 127.0.0.1:"));
  EXPECT_THAT(outcomes[1].output, HasSubstr("rank 0 did not come"));
}

// Between joining and the first connection nothing tells of a death but silence.
TEST(Transport, ARankKilledBeforeTheTransportIsChosenIsNamed) {
  // Rank 1 is another program's, as far as rank 0 and 2 can tell: it joins and is killed.
  Ranks ranks({.world = 3,
               .mode = "collectives",
               .env = {{"SHOAL_TRANSPORT", "shm"}, {"TEST_TIMEOUT_MS", kTimeoutMs}, {"TEST_JOIN_ONLY", "1"}}});
  ASSERT_TRUE(ranks.wait_until_said(1, "ready"));
  ranks.kill(1);
  const auto outcomes = ranks.wait();
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].exit_code, 3);
    EXPECT_THAT(outcomes[rank].output, HasSubstr("choosing the transport: rank 1 died or hangs"));
  }
}

// Of two ranks the one with the greater port connects: one of three never does, and then nobody dies.
TEST(Transport, ARankKilledWhileItConnectsOverGlooIsNamed) {
  for (const std::string where : {"listen", "connect"}) {
    int deaths = 0;
    std::map<int, std::unique_ptr<Ranks>> worlds;  // by the victim
    for (const int victim : {0, 1, 2}) {
      worlds[victim] = start({.world = 3,
                              .mode = "collectives",
                              .env = {{"SHOAL_TRANSPORT", "gloo"},
                                      {"TEST_TIMEOUT_MS", kTimeoutMs},
                                      {"TEST_VICTIM", std::to_string(victim)},
                                      {"TEST_DIES_AT", where}}});
    }
    for (const auto& [victim, ranks] : worlds) {
      SCOPED_TRACE(where + ", rank " + std::to_string(victim));
      ranks->wait_for_end(victim);
      const auto died = std::chrono::steady_clock::now();
      const auto outcomes = ranks->wait();
      EXPECT_LT(std::chrono::steady_clock::now() - died, kSoon);
      const bool died_there = outcomes[static_cast<size_t>(victim)].signal == SIGKILL;
      deaths += died_there ? 1 : 0;
      for (int rank = 0; rank < 3; ++rank) {
        const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
        if (!died_there) {
          EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
          continue;
        }
        if (rank == victim) continue;
        EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
        EXPECT_THAT(outcome.output, HasSubstr("[comm rank " + std::to_string(rank) + "] "));
        EXPECT_THAT(outcome.output, HasSubstr("rank " + std::to_string(victim) + " died"));
      }
    }
    EXPECT_GE(deaths, where == "listen" ? 3 : 1) << where;
  }
}

struct Ending {
  std::string how;
  std::string others;  // what the other ranks say
};

TEST_P(Transports, EveryEndingIsSaidOnEveryRank) {
  const std::string last = std::to_string(world() - 1);
  const std::vector<Ending> endings{
      {"leave", "gather of head (weights #2): rank " + last + " left"},
      {"abort", "gather of head (weights #2): rank " + last + " gave up: loss is not a number"},
      {"astray", "gather of head (weights #2): rank " + last + " is at reduce of head (weights #2) instead"},
  };
  std::map<std::string, std::unique_ptr<Ranks>> worlds;
  for (const Ending& ending : endings) {
    worlds[ending.how] = start({.world = world(), .mode = "stop_together", .env = env({{"TEST_HOW", ending.how}})});
  }
  for (const Ending& ending : endings) {
    SCOPED_TRACE(ending.how);
    Ranks& ranks = *worlds[ending.how];
    for (int rank = 0; rank < world() - 1; ++rank) ranks.wait_for_end(rank);
    if (ending.how == "leave") ranks.kill(world() - 1);
    const auto outcomes = ranks.wait();
    for (int rank = 0; rank < world() - 1; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr("[comm rank " + std::to_string(rank) + "] " + ending.others));
    }
    if (ending.how == "astray") {
      EXPECT_THAT(outcomes.back().output,
                  HasSubstr("reduce of head (weights #2): rank 0 is at gather of head (weights #2) instead"));
    }
    if (ending.how == "abort") {
      EXPECT_THAT(outcomes.back().output, HasSubstr("loss is not a number"));
    }
  }
}

TEST_P(Transports, TheReasonOutlivesTheRankThatServesTheStore) {
  const auto outcomes =
      Ranks({.world = world(), .mode = "stop_together", .env = env({{"TEST_HOW", "abort by rank 0"}})}).wait();
  EXPECT_EQ(outcomes[0].exit_code, 4);
  for (int rank = 1; rank < world(); ++rank) {
    EXPECT_THAT(outcomes[static_cast<size_t>(rank)].output,
                HasSubstr("gather of head (weights #2): rank 0 gave up: no space left"));
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, Transports,
                         ::testing::Combine(::testing::Values("shm", "gloo"), ::testing::Values(2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
                         });

TEST(Transport, BitsAreTheSameOnThreadsSharedMemoryAndGloo) {
  std::string threads;
  {
    auto groups = make_thread_groups(3);
    std::vector<std::thread> ranks;
    ::testing::internal::CaptureStdout();
    for (auto& group : groups) ranks.emplace_back([&group] { print_all_reduced(*group); });
    for (std::thread& rank : ranks) rank.join();
    threads = ::testing::internal::GetCapturedStdout();
  }
  const std::vector<std::string> bits = testing::lines_said(threads);
  ASSERT_EQ(bits.size(), 3u);
  EXPECT_THAT(bits, ::testing::Each(bits[0]));
  for (const std::string transport : {"shm", "gloo"}) {
    const auto outcomes = Ranks({.world = 3, .mode = "print_bits", .env = {{"SHOAL_TRANSPORT", transport}}}).wait();
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(testing::lines_said(outcome.output), ::testing::ElementsAre(bits[0]));
    }
  }
}

TEST(Transport, AutomaticTakesSharedMemoryOnOneHost) {
  const auto outcomes = Ranks({.world = 2, .mode = "collectives", .env = {{"SHOAL_TRANSPORT", "auto"}}}).wait();
  expect_all_good(outcomes);
  EXPECT_THAT(outcomes[0].output, HasSubstr("transport: shared memory"));
}

TEST(Transport, FreedMemoryIsUnmappedByPeers) {
  expect_all_good(Ranks({.world = 3, .mode = "let_go", .env = {{"SHOAL_TRANSPORT", "shm"}}}).wait());
}

TEST(Transport, AnUnknownTransportIsRefused) {
  const auto outcomes = Ranks({.world = 2, .mode = "collectives", .env = {{"SHOAL_TRANSPORT", "pigeon"}}}).wait();
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.output,
                HasSubstr("[comm SHOAL_TRANSPORT] pigeon is not a transport. Use one of auto, shm, gloo, nccl."));
  }
}

}  // namespace

int run(int argc, char** argv) {
  return testing::rank_main(argc, argv,
                            {{"collectives", run_collectives},
                             {"let_go", let_go_of_memory},
                             {"two_worlds", two_worlds},
                             {"print_bits", print_bits},
                             {"lose_a_rank", lose_a_rank},
                             {"lose_a_rank_of_a_part", lose_a_rank_of_a_part},
                             {"stop_together", stop_together}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
