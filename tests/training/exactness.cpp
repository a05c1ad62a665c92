// See exactness.h.
#include "training/exactness.h"

#include <fmt/format.h>

#include "test_size.h"

namespace shoal::testing {

namespace {

// Each stage with overlap, with recompute, with both and with neither: all four, or two of them, of which the cell that
// only differs in clipping has the others.
bool runs(const Cell& cell, int stage, bool overlap, bool recompute) {
  if (tests_are_whole()) return true;
  return (recompute == overlap) == ((stage % 2 == 0) == cell.clip);
}

}  // namespace

std::vector<Cell> every_cell(const std::vector<int>& worlds) {
  std::vector<Cell> all;
  for (const int world : worlds) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const int64_t accumulation : {1, 3}) {
        for (const bool clip : {true, false}) all.push_back({world, precision, accumulation, clip});
      }
    }
  }
  return all;
}

std::string cell_name(const ::testing::TestParamInfo<Cell>& info) {
  const Cell& cell = info.param;
  return fmt::format("world{}_{}_accumulate{}_{}", cell.world, name_of(cell.precision), cell.accumulation,
                     cell.clip ? "clip" : "noclip");
}

void expect_same_bits_in(const Cell& cell, at::Device device) {
  RunOptions options;
  options.device = device;
  options.precision = cell.precision;
  options.accumulation = cell.accumulation;
  options.clip = cell.clip;
  if (!tests_are_whole()) options.steps = 10;  // the overflow, and steps after it
  options.overlap = false;
  const std::vector<RunResult> expected = train_on_threads(cell.world, options);
  for (int rank = 0; rank < cell.world; ++rank) {
    EXPECT_EQ(expected[rank].weights, expected[0].weights) << "the ranks of one run have different weights";
    EXPECT_FALSE(expected[rank].applied[7]) << "the forced overflow was applied";
    EXPECT_TRUE(expected[rank].applied[8]);
  }
  for (const bool recompute : {false, true}) {
    for (const bool overlap : {false, true}) {
      for (int stage = 0; stage <= 3; ++stage) {
        // The run to compare with. A GPU must also repeat itself.
        if (stage == 0 && !overlap && !recompute && device.is_cpu()) continue;
        if (!runs(cell, stage, overlap, recompute)) continue;
        options.stage = stage;
        options.overlap = overlap;
        options.recompute = recompute;
        const std::vector<RunResult> got = train_on_threads(cell.world, options);
        for (int rank = 0; rank < cell.world; ++rank) {
          const RunResult& a = expected[rank];
          const RunResult& b = got[rank];
          const std::string what =
              fmt::format("stage {} overlap {} recompute {} rank {}", stage, overlap, recompute, rank);
          EXPECT_EQ(RunResult::bits(a.losses), RunResult::bits(b.losses)) << what;
          EXPECT_EQ(RunResult::bits(a.norms), RunResult::bits(b.norms)) << what;
          EXPECT_TRUE(a.weights == b.weights) << what;
          EXPECT_EQ(a.applied, b.applied) << what;
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace shoal::testing
