// Groups of ranks over real processes, through shared memory and Gloo, on hosts that SHOAL_HOSTS names: the bits of
// ranks as threads, and the bytes between hosts that the plan counts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "process/spawn.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kWorld = 4;

struct Cell {
  std::string name;
  RunOptions options;
};

std::vector<Cell> cells() {
  std::vector<Cell> all;
  const auto add = [&](const std::string& name, auto change) {
    RunOptions options;
    options.precision = Precision::bf16;
    options.stage = 3;
    options.leaves = 8;
    options.steps = 8;
    change(options);
    all.push_back({name, options});
  };
  add("full", [](RunOptions&) {});
  add("2 x 2", [](RunOptions& o) { o.shard_size = 2; });
  add("2 x 2, stage 1", [](RunOptions& o) { o.shard_size = 2, o.stage = 1; });
  add("second copy in 2", [](RunOptions& o) { o.second_copy = 2; });
  add("over hosts", [](RunOptions& o) { o.shard_size = 4, o.hierarchical = true; });
  add("weights in int8", [](RunOptions& o) { o.quantized_weights = true; });
  add("gradients in int4, stage 2", [](RunOptions& o) { o.quantized_gradient_bits = 4, o.stage = 2; });
  add("all of ZeRO++", [](RunOptions& o) {
    o.quantized_weights = true;
    o.quantized_gradient_bits = 4;
    o.error_feedback = 0.8;
    o.second_copy = 2;
  });
  return all;
}

std::string line_of(const Cell& cell, int rank, const RunResult& result) {
  return fmt::format("rank {}, {}: bits {:016x}", rank, cell.name, result.hash());
}

int train_as_process() {
  auto world = make_process_group();
  say(fmt::format("transport: {}", world->transport_name()));
  for (const Cell& cell : cells()) say(line_of(cell, world->rank(), train(*world, cell.options)));
  const Traffic before = world->traffic();
  std::vector<int> all(kWorld);
  const int rank = world->rank();
  world->all_gather({{"say", "rank"}, &rank, all.data(), sizeof(int), nullptr}).wait();
  say(fmt::format("between hosts: {}", world->traffic().sent_between_hosts - before.sent_between_hosts));
  return 0;
}

int train_as_threads() {
  for (Cell& cell : cells()) {
    cell.options.hosts = {0, 0, 1, 1};
    const std::vector<RunResult> results = train_on_threads(kWorld, cell.options);
    for (int rank = 0; rank < kWorld; ++rank) say(line_of(cell, rank, results[static_cast<size_t>(rank)]));
  }
  return 0;
}

std::string lines_with(const std::string& output, const std::string& beginning) {
  std::string found;
  for (const std::string& line : lines_said(output)) {
    if (line.rfind(beginning, 0) == 0) found += line + "\n";
  }
  return found;
}

TEST(EngineHybrid, ProcessesHaveTheBitsOfThreadsOnEveryMesh) {
  const Outcome threads = Ranks({.world = 1, .mode = "threads", .limit = 400s}).wait().front();
  ASSERT_EQ(threads.exit_code, 0) << threads.output;
  for (const std::string transport : {"shm", "gloo"}) {
    SCOPED_TRACE(transport);
    const auto outcomes = Ranks({.world = kWorld,
                                 .mode = "process",
                                 .env = {{"SHOAL_TRANSPORT", transport}, {"SHOAL_HOSTS", "a,a,b,b"}},
                                 .limit = 400s})
                              .wait();
    for (int rank = 0; rank < kWorld; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      const std::string beginning = fmt::format("rank {}, ", rank);
      const std::string expected = lines_with(threads.output, beginning);
      EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), static_cast<std::ptrdiff_t>(cells().size()));
      EXPECT_EQ(lines_with(outcome.output, beginning), expected);
      EXPECT_THAT(outcome.output, HasSubstr(fmt::format("between hosts: {}", 2 * sizeof(int))));
    }
  }
}

// Which ranks are told, and that all of them are.
TEST(EngineHybrid, HostsThatAreWronglyNamedEndEveryRankInOneSentence) {
  for (const Outcome& outcome :
       Ranks({.world = 2, .mode = "process", .env = {{"SHOAL_HOSTS", "a,a,b,b"}}, .limit = 100s}).wait()) {
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_THAT(outcome.output,
                HasSubstr("[comm SHOAL_HOSTS] \"a,a,b,b\" names the hosts of 4 ranks, and there are 2."));
  }
}

}  // namespace

int run(int argc, char** argv) {
  return rank_main(argc, argv, {{"process", train_as_process}, {"threads", train_as_threads}});
}

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
