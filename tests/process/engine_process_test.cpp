// The engine over real processes: a part of the exactness matrix through shared memory and through Gloo, which must
// give the bits that ranks as threads give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "process/spawn.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

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
        for (const bool recompute : {false, true}) {
          RunOptions options;
          options.precision = precision;
          options.accumulation = accumulation;
          options.stage = stage;
          options.recompute = recompute;
          options.overlap = recompute == (accumulation == 1);  // both, without doubling the number of cells
          all.push_back({fmt::format("{} accumulate {} stage {} recompute {} overlap {}",
                                     precision == Precision::fp32 ? "fp32" : "bf16", accumulation, stage, recompute,
                                     options.overlap),
                         options});
        }
      }
    }
  }
  return all;
}

std::string line_of(const Cell& cell, const RunResult& result) {
  return fmt::format("{}: {} losses, bits {:016x}\n", cell.name, result.losses.size(), result.hash());
}

int train_cells() {
  auto world = make_process_group();
  fmt::print("transport: {}\n", world->transport_name());
  for (const Cell& cell : cells()) fmt::print("{}", line_of(cell, train(*world, cell.options)));
  return 0;
}

// Rank 0 says on stderr that it skips a step.
std::string without_step_lines(const std::string& output) {
  std::string rest;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("shoal: ", 0) != 0) rest += line + "\n";
  }
  return rest;
}

class EngineProcesses : public ::testing::TestWithParam<int> {};

TEST_P(EngineProcesses, SharedMemoryAndGlooGiveTheBitsOfThreads) {
  const int world = GetParam();
  std::vector<std::string> expected(static_cast<size_t>(world));  // by rank: losses are the rank's own
  for (const Cell& cell : cells()) {
    const std::vector<RunResult> results = train_on_threads(world, cell.options);
    for (size_t rank = 0; rank < expected.size(); ++rank) expected[rank] += line_of(cell, results[rank]);
  }
  for (const std::string transport : {"shm", "gloo"}) {
    SCOPED_TRACE(transport);
    const auto outcomes = Ranks({.world = world,
                                 .mode = "train_cells",
                                 .env = {{"SHOAL_TRANSPORT", transport}},
                                 .limit = std::chrono::seconds(120)})
                              .wait();
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_EQ(outcomes[rank].exit_code, 0) << "rank " << rank;
      EXPECT_THAT(outcomes[rank].output, HasSubstr(transport == "shm" ? "transport: shared memory" : "transport: gloo"));
      EXPECT_THAT(without_step_lines(outcomes[rank].output), HasSubstr(expected[rank])) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, EngineProcesses, ::testing::Values(2, 3),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace

int run(int argc, char** argv) { return rank_main(argc, argv, {{"train_cells", train_cells}}); }

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
