#include "optim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/host_queue.h"
#include "unit/comm/rank_threads.h"

namespace shoal {

namespace {

// Flats of one run a rank: sums[r] is what rank r gives, one sum a flat. Returns what each rank decides.
std::vector<kernels::StepRecord> norms_of(const std::vector<std::vector<double>>& sums) {
  std::vector<kernels::StepRecord> norms(sums.size());
  const auto world = static_cast<int>(sums.size());
  ModelLayout layout{.mesh = world, .units = std::vector<UnitLayout>(1)};
  for (size_t flat = 0; flat < sums[0].size(); ++flat) {
    FlatLayout& added = layout.units[0].flats.emplace_back();
    added.numel = kRunNumel;
    cut_evenly(added, layout.mesh);
  }
  testing::run_ranks(world, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const std::unique_ptr<Queue> queue = make_host_queue();
    GlobalNorm norm(group, *queue, layout, std::make_shared<Ledger>());
    kernels::StepProgress progress;
    kernels::Decision decision;
    norm.gather(sums[rank].data(), decision);
    decision.progress = &progress;
    decision.record = &norms[rank];
    kernels::decide(decision);
  });
  return norms;
}

}  // namespace

TEST(GradNorm, AddsRanksAsATreeThenFlatsInOrderInFp64) {
  for (int world = 1; world <= 4; ++world) {
    std::vector<std::vector<double>> sums;
    for (int rank = 0; rank < world; ++rank) sums.push_back({0.1 + rank, 1e-17 * rank, 1e9 / (rank + 3)});
    double expected = 0;
    for (size_t flat = 0; flat < 3; ++flat) {
      const auto of = [&](int rank) { return rank < world ? sums[static_cast<size_t>(rank)][flat] : 0.0; };
      expected += (of(0) + of(1)) + (of(2) + of(3));
    }
    for (const kernels::StepRecord& norm : norms_of(sums)) {
      EXPECT_EQ(norm.grad_norm, std::sqrt(expected)) << world << " ranks";
      EXPECT_TRUE(norm.applied);
      EXPECT_EQ(norm.first_bad, -1);
    }
  }
}

TEST(GradNorm, OfNothingIsZero) {
  EXPECT_EQ(norms_of({{}})[0].grad_norm, 0);
  EXPECT_EQ(norms_of({{}, {}})[1].grad_norm, 0);
  EXPECT_TRUE(norms_of({{}, {}})[1].applied);
}

TEST(GradNorm, TellsEveryRankTheFirstFlatThatIsNotFiniteAnywhere) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const kernels::StepRecord& norm : norms_of({{1, 1, nan, 1}, {1, 1, 1, 1}, {1, infinity, 1, 1}})) {
    EXPECT_FALSE(norm.applied);
    EXPECT_EQ(norm.first_bad, 1);
  }
}

TEST(GradNorm, NamesNoFlatWhenOnlyTheSumOverflows) {
  const double huge = std::numeric_limits<double>::max();
  for (const kernels::StepRecord& norm : norms_of({{huge, 1}, {1, huge}})) {
    EXPECT_FALSE(norm.applied);
    EXPECT_EQ(norm.first_bad, -1);
  }
}

}  // namespace shoal
