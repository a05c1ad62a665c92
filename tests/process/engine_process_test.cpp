// The engine over real processes: a part of the exactness matrix through shared memory, through Gloo, and through Gloo
// with ranks on two hosts, which must give the bits that ranks as threads give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "process/spawn.h"
#include "process/two_hosts.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

struct Cell {
  std::string name;
  RunOptions options;
};

// In one order on every rank: one process trains them all, one engine after the other. With TEST_CELLS=few each stage
// is there once.
std::vector<Cell> cells(bool few) {
  std::vector<Cell> all;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const int64_t accumulation : {1, 3}) {
      for (int stage = 0; stage <= 3; ++stage) {
        RunOptions options;
        options.precision = precision;
        options.accumulation = accumulation;
        options.stage = stage;
        options.steps = 10;  // the overflow, and steps after it
        // Both at every stage, without four times as many cells.
        options.recompute = (accumulation == 1) == (stage % 2 == 0);
        options.overlap = (precision == Precision::fp32) == (stage % 2 == 0);
        if (few && (precision == Precision::bf16) != (stage >= 2)) continue;
        if (few && accumulation != (stage % 2 == 0 ? 1 : 3)) continue;
        all.push_back({fmt::format("{} accumulate {} stage {} recompute {} overlap {}",
                                   precision == Precision::fp32 ? "fp32" : "bf16", accumulation, stage,
                                   options.recompute, options.overlap),
                       options});
      }
    }
  }
  return all;
}

bool asked_for_few() { return std::getenv("TEST_CELLS") != nullptr; }

std::string line_of(const Cell& cell, int rank, const RunResult& result) {
  return fmt::format("rank {}, {}: {} losses, bits {:016x}", rank, cell.name, result.losses.size(), result.hash());
}

int train_as_process() {
  auto world = make_process_group();
  say(fmt::format("transport: {}", world->transport_name()));
  for (const Cell& cell : cells(asked_for_few())) say(line_of(cell, world->rank(), train(*world, cell.options)));
  return 0;
}

int train_as_threads() {
  const int world = std::stoi(std::getenv("TEST_WORLD"));
  for (const Cell& cell : cells(asked_for_few())) {
    const std::vector<RunResult> results = train_on_threads(world, cell.options);
    for (int rank = 0; rank < world; ++rank) say(line_of(cell, rank, results[static_cast<size_t>(rank)]));
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

// What ranks as threads print, in a process of its own with the environment of the ranks: BLAS reads its number of
// threads when it is loaded, and sums in another order with another number.
Outcome outcome_of_threads(int world, std::map<std::string, std::string> env = {}) {
  env["TEST_WORLD"] = std::to_string(world);
  return Ranks({.world = 1, .mode = "threads", .env = env, .limit = 400s}).wait().front();
}

void expect_bits_of(const Outcome& threads, const std::vector<Outcome>& outcomes, const std::string& transport,
                    size_t cell_count) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("transport: " + transport));
    const std::string beginning = fmt::format("rank {}, ", rank);
    const std::string expected = lines_with(threads.output, beginning);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), static_cast<std::ptrdiff_t>(cell_count));
    EXPECT_EQ(lines_with(outcome.output, beginning), expected);
  }
}

class EngineProcesses : public ::testing::TestWithParam<int> {};

TEST_P(EngineProcesses, SharedMemoryAndGlooGiveTheBitsOfThreads) {
  const int world = GetParam();
  const Outcome threads = outcome_of_threads(world);
  ASSERT_EQ(threads.exit_code, 0) << threads.output;
  for (const std::string transport : {"shm", "gloo"}) {
    SCOPED_TRACE(transport);
    const auto outcomes =
        Ranks({.world = world, .mode = "process", .env = {{"SHOAL_TRANSPORT", transport}}, .limit = 400s}).wait();
    expect_bits_of(threads, outcomes, transport == "shm" ? "shared memory" : "gloo", cells(false).size());
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, EngineProcesses, ::testing::Values(2, 3),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

TEST(EngineOnTwoHosts, GivesTheBitsOfThreads) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  for (const std::vector<int>& host_of : {std::vector<int>{0, 1}, std::vector<int>{0, 0, 1, 1}}) {
    const int world = static_cast<int>(host_of.size());
    SCOPED_TRACE(fmt::format("{} ranks a host", world / 2));
    const Outcome threads = outcome_of_threads(world, {{"TEST_CELLS", "few"}});
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    const auto outcomes = Ranks({.world = world,
                                 .mode = "process",
                                 .env = {{"SHOAL_TRANSPORT", "gloo"}, {"TEST_CELLS", "few"}},
                                 .host = TwoHosts::kFirstAddress,
                                 .limit = 400s,
                                 .prefix = hosts.prefix(host_of)})
                              .wait();
    expect_bits_of(threads, outcomes, "gloo", cells(true).size());
  }
}

}  // namespace

int run(int argc, char** argv) {
  return rank_main(argc, argv, {{"process", train_as_process}, {"threads", train_as_threads}});
}

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
