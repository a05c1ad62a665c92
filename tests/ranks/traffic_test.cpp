// Bytes over the wire per step are those of the ZeRO paper: stages 1 and 2 those of data parallel, stage 3 one and a
// half times as many.
#include <ATen/Parallel.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "layout/norm_tops.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

constexpr int kUnits = 5;
constexpr int64_t kSide = 64;

Traffic traffic_of_one_step(int stage, int world, int64_t prefetch, bool overlap) {
  std::vector<Traffic> ranks = on_threads<Traffic>(world, [&](Group& group) {
    at::set_num_threads(1);
    std::vector<at::Tensor> weights;
    std::vector<Unit> units;
    for (int unit = 0; unit < kUnits; ++unit) {
      weights.push_back(at::eye(kSide).mul(0.5).set_requires_grad(true));
      units.push_back({"u" + std::to_string(unit), {{"w" + std::to_string(unit), weights.back()}}});
    }
    RunOptions options;
    options.stage = stage;
    options.prefetch = prefetch;
    options.overlap = overlap;
    options.persistence_threshold = 0;
    Engine engine(units, config_of(options, world), group);
    Traffic before;
    for (int step = 0; step < 4; ++step) {
      before = engine.meters().traffic();
      at::Tensor x = at::ones({2, kSide});
      for (int unit = 0; unit < kUnits; ++unit) {
        x = engine.run(unit, x, [&](const at::Tensor& t) { return at::linear(t, weights[unit]); });
      }
      engine.backward(x.sum());
      engine.step();
    }
    Traffic after = engine.meters().traffic();
    after.sent_nbytes -= before.sent_nbytes;
    after.received_nbytes -= before.received_nbytes;
    return after;
  });
  for (const Traffic& rank : ranks) EXPECT_EQ(rank.sent_nbytes, ranks[0].sent_nbytes);
  return ranks[0];
}

TEST(Traffic, StepVolumesAreThoseOfThePaper) {
  const uint64_t model_nbytes = kUnits * kSide * kSide * 4;
  for (const int world : {1, 2, 3, 4}) {
    const uint64_t others = static_cast<uint64_t>(world - 1);
    const uint64_t ranks = static_cast<uint64_t>(world);
    // A flat is padded so that it cuts evenly.
    const uint64_t padded = kUnits * ((kSide * kSide + 128 * world - 1) / (128 * world) * 128 * world) * 4;
    EXPECT_GE(padded, model_nbytes);
    const auto part_runs = static_cast<int64_t>(padded / 4 / kUnits / ranks / 128);
    const uint64_t norm_nbytes = others * kUnits * static_cast<uint64_t>(most_tops(part_runs, world)) * sizeof(double);
    for (const bool overlap : {true, false}) {
      for (const int64_t prefetch : {int64_t{0}, int64_t{10'000}}) {
        for (int stage = 0; stage <= 3; ++stage) {
          const uint64_t passes_over_the_model = stage == 3 ? 3 : 2;
          const Traffic step = traffic_of_one_step(stage, world, prefetch, overlap);
          EXPECT_EQ(step.sent_nbytes, passes_over_the_model * padded / ranks * others + norm_nbytes)
              << "world " << world << " stage " << stage;
          EXPECT_EQ(step.received_nbytes, step.sent_nbytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
