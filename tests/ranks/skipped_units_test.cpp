// Ranks that leave out long runs of units: nothing hangs, and every stage gives the same bits.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

constexpr int kUnits = 8;
constexpr int64_t kSide = 16;

struct SkipOptions {
  int stage = 3;
  int64_t prefetch = 0;
  bool overlap = true;
  int buffers = 0;            // of weights on disk; 0: they are in memory
  bool without_last = false;  // ranks leave out the last units too
  bool each_others = false;   // every rank leaves out units, each its own
};

// Whether a rank uses a unit in a step: rank 0 uses all, the others leave out runs of up to six neighbours.
bool uses(int rank, int step, int unit, bool without_last, bool each_others) {
  if (each_others) return (unit + step) % 3 != rank;
  if (rank == 0 || unit == 0) return true;
  if (without_last && unit >= kUnits - 2) return false;
  if (unit == kUnits - 1) return true;
  return (unit + step) % 7 == rank % 7;
}

std::string train_skipping(Group& group, const SkipOptions& options) {
  at::set_num_threads(1);
  at::Generator random = at::detail::createCPUGenerator(3);
  std::vector<at::Tensor> weights;
  std::vector<Unit> units;
  std::vector<std::string> names;
  for (int unit = 0; unit < kUnits; ++unit) {
    weights.push_back(at::empty({kSide, kSide}).normal_(0, 0.3, random).set_requires_grad(true));
    names.push_back("w" + std::to_string(unit));
    units.push_back({"u" + std::to_string(unit), {{names.back(), weights.back()}}});
  }
  RunOptions run;
  run.stage = options.stage;
  run.prefetch = options.prefetch;
  run.overlap = options.overlap;
  run.persistence_threshold = 0;
  const TempFolder folder;
  if (options.buffers > 0) {
    run.weights_tier = Tier::disk;
    run.weights_path = folder.path();
    run.weight_buffers = options.buffers;
  }
  Engine engine(units, config_of(run, group.size()), group);
  std::string bits;
  for (int step = 0; step < 5; ++step) {
    at::Tensor x = at::ones({2, kSide}).mul(group.rank() + 1);
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!uses(group.rank(), step, unit, options.without_last, options.each_others)) continue;
      x = engine.run(unit, x, [&](const at::Tensor& t) { return t.add(at::linear(t, weights[unit]).tanh()); });
    }
    engine.backward(x.square().mean());
    const double norm = engine.step().grad_norm;
    bits.append(reinterpret_cast<const char*>(&norm), sizeof(norm));
  }
  engine.with_gathered(names, Access::read, [&] {
    for (const at::Tensor& weight : weights)
      bits.append(static_cast<const char*>(weight.const_data_ptr()), weight.nbytes());
  });
  return bits;
}

std::string train_on(int world, const SkipOptions& options) {
  return on_threads<std::string>(
      world, [&](Group& group) { return train_skipping(group, options); }, std::chrono::seconds(20))[0];
}

TEST(SkippedUnits, LongRunsOfThemNeitherHangNorChangeABit) {
  for (const int world : {2, 3}) {
    const auto train = [&](const SkipOptions& options) { return train_on(world, options); };
    const std::string expected = train({.stage = 0});
    for (int stage = 1; stage <= 3; ++stage) {
      for (const bool overlap : {true, false}) {
        for (const int64_t prefetch : {int64_t{0}, kSide * kSide, 3 * kSide * kSide, int64_t{1'000'000}}) {
          EXPECT_TRUE(train({stage, prefetch, overlap}) == expected)
              << "world " << world << " stage " << stage << " overlap " << overlap << " prefetch " << prefetch;
        }
      }
    }
  }
}

TEST(SkippedUnits, RanksThatEachLeaveOutOthersNeitherHangNorChangeABit) {
  for (const int world : {2, 3}) {
    const std::string expected = train_on(world, {.stage = 0, .each_others = true});
    for (int stage = 1; stage <= 3; ++stage) {
      for (const bool overlap : {true, false}) {
        for (const int64_t prefetch : {int64_t{0}, 3 * kSide * kSide}) {
          const SkipOptions options{.stage = stage, .prefetch = prefetch, .overlap = overlap, .each_others = true};
          EXPECT_TRUE(train_on(world, options) == expected)
              << "world " << world << " stage " << stage << " overlap " << overlap << " prefetch " << prefetch;
        }
      }
    }
  }
}

// A gather that waits for its buffer must not wait for a peer that waits for this rank's reduction.
TEST(SkippedUnits, WithWeightsOnDiskNothingWaitsForABufferThatAnotherGatherAheadOfUseHas) {
  for (const int world : {2, 3}) {
    for (const bool without_last : {false, true}) {
      const std::string expected = train_on(world, {.stage = 0, .without_last = without_last});
      for (const int buffers : {1, 2, 5}) {
        for (const int64_t prefetch : {3 * kSide * kSide, int64_t{1'000'000}}) {
          EXPECT_TRUE(train_on(world, {3, prefetch, true, buffers, without_last}) == expected)
              << "world " << world << " buffers " << buffers << " prefetch " << prefetch << " without the last "
              << without_last;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
