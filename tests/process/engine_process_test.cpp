// The engine over real processes: a part of the exactness matrix through shared memory and through Gloo, which must
// give the bits that ranks as threads give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "process/spawn.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

struct Cell {
  std::string name;
  RunOptions options;
};

// In one order on every rank: one process trains them all, one engine after the other.
std::vector<Cell> cells() {
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
        all.push_back({fmt::format("{} accumulate {} stage {} recompute {} overlap {}",
                                   precision == Precision::fp32 ? "fp32" : "bf16", accumulation, stage,
                                   options.recompute, options.overlap),
                       options});
      }
    }
  }
  return all;
}

std::string line_of(const Cell& cell, int rank, const RunResult& result) {
  return fmt::format("rank {}, {}: {} losses, bits {:016x}\n", rank, cell.name, result.losses.size(), result.hash());
}

int train_as_process() {
  auto world = make_process_group();
  fmt::print("transport: {}\n", world->transport_name());
  for (const Cell& cell : cells()) fmt::print("{}", line_of(cell, world->rank(), train(*world, cell.options)));
  return 0;
}

int train_as_threads() {
  const int world = std::stoi(std::getenv("TEST_WORLD"));
  for (const Cell& cell : cells()) {
    const std::vector<RunResult> results = train_on_threads(world, cell.options);
    for (int rank = 0; rank < world; ++rank) fmt::print("{}", line_of(cell, rank, results[static_cast<size_t>(rank)]));
  }
  return 0;
}

std::string lines_with(const std::string& output, const std::string& beginning) {
  std::string found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(beginning, 0) == 0) found += line + "\n";
  }
  return found;
}

class EngineProcesses : public ::testing::TestWithParam<int> {};

TEST_P(EngineProcesses, SharedMemoryAndGlooGiveTheBitsOfThreads) {
  const int world = GetParam();
  // In a process of its own, with the environment of the ranks: BLAS reads its number of threads when it is loaded,
  // and sums in another order with another number.
  const auto threads =
      Ranks({.world = 1, .mode = "threads", .env = {{"TEST_WORLD", std::to_string(world)}}, .limit = 120s}).wait();
  ASSERT_EQ(threads[0].exit_code, 0) << threads[0].output;
  for (const std::string transport : {"shm", "gloo"}) {
    SCOPED_TRACE(transport);
    const auto outcomes =
        Ranks({.world = world, .mode = "process", .env = {{"SHOAL_TRANSPORT", transport}}, .limit = 120s}).wait();
    for (int rank = 0; rank < world; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr(transport == "shm" ? "transport: shared memory" : "transport: gloo"));
      const std::string beginning = fmt::format("rank {}, ", rank);
      const std::string expected = lines_with(threads[0].output, beginning);
      EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), static_cast<std::ptrdiff_t>(cells().size()));
      EXPECT_EQ(lines_with(outcome.output, beginning), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, EngineProcesses, ::testing::Values(2, 3),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace

int run(int argc, char** argv) {
  return rank_main(argc, argv, {{"process", train_as_process}, {"threads", train_as_threads}});
}

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
