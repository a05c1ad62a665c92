// A step's decision on a GPU equals the host's to the bit, through histories with norms that are not finite.
#include "kernels/cuda/decide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cuda/gpu.h"
#include "kernels/decide_body.h"
#include "layout/norm_tops.h"
#include "unit/kernels/step_histories.h"

namespace shoal::kernels {
namespace {

class CudaDecide : public OnGpu {};

// Field by field, since structs have gaps. A NaN may be any NaN.
void expect_same(const StepRecord& host, const StepRecord& device) {
  ASSERT_EQ(host.applied, device.applied);
  ASSERT_EQ(host.scale_exhausted, device.scale_exhausted);
  ASSERT_EQ(host.first_bad, device.first_bad);
  for (const auto& [a, b] :
       {std::pair(host.grad_norm, device.grad_norm), std::pair(host.grad_scale, device.grad_scale),
        std::pair(host.loss_scale, device.loss_scale), std::pair(host.after.scale.scale, device.after.scale.scale)}) {
    ASSERT_TRUE(std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b))) << a << " " << b;
  }
  ASSERT_EQ(host.steps_before, device.steps_before);
  ASSERT_EQ(host.after.applied, device.after.applied);
  ASSERT_EQ(host.after.skipped, device.after.skipped);
  ASSERT_EQ(host.after.backward_scale, device.after.backward_scale);
  ASSERT_EQ(host.after.scale.hysteresis_left, device.after.scale.hysteresis_left);
  ASSERT_EQ(host.after.scale.step, device.after.scale.step);
  ASSERT_EQ(host.after.scale.last_overflow, device.after.scale.last_overflow);
}

TEST_F(CudaDecide, EqualsTheHostThroughRandomHistories) {
  constexpr int64_t kGroups = 3;
  for (const StepHistory& history : step_histories(tests_are_small() ? 4 : 30)) {
    StepProgress progress = history.first;
    auto* device_standing = static_cast<StepProgress*>(take_copy(&progress, sizeof(progress)));
    auto* device_record = static_cast<StepRecord*>(take(sizeof(StepRecord)));
    auto* device_picked = static_cast<AdamStep*>(take(kGroups * sizeof(AdamStep)));
    double* device_sums = static_cast<double*>(take(history.sums[0].size() * sizeof(double)));
    const std::vector<FlatTops> flat_tops = history.flat_tops();
    const std::vector<int> rank_of_part = history.rank_of_part();
    const auto* device_flat_tops =
        static_cast<const FlatTops*>(take_copy(flat_tops.data(), flat_tops.size() * sizeof(FlatTops)));
    const auto* device_rank_of_part =
        static_cast<const int*>(take_copy(rank_of_part.data(), rank_of_part.size() * sizeof(int)));
    auto* device_choices = static_cast<AdamStep*>(take(2 * kGroups * sizeof(AdamStep)));
    for (const std::vector<double>& sums : history.sums) {
      std::vector<AdamStep> choices(2 * kGroups), picked(kGroups);
      for (size_t i = 0; i < choices.size(); ++i) choices[i].lr = static_cast<float>(i + 1);
      const int64_t first = progress.applied - static_cast<int64_t>(sums.size() % 2);
      const StepChoice<AdamStep> choice{choices.data(), first, 2, kGroups, picked.data()};
      StepRecord record;
      Decision decision{sums.data(),   history.flats, rank_of_part.data(), history.ranks, flat_tops.data(),
                        history.flats, history.rules, &progress,           &record};
      decide(decision);
      for (int64_t group = 0; group < kGroups; ++group) pick(choice, record, group);

      check(cudaMemcpy(device_sums, sums.data(), sums.size() * sizeof(double), cudaMemcpyHostToDevice), "sums");
      check(cudaMemcpy(device_choices, choices.data(), choices.size() * sizeof(AdamStep), cudaMemcpyHostToDevice),
            "choices");
      decision.tops = device_sums;
      decision.flat_tops = device_flat_tops;
      decision.rank_of_part = device_rank_of_part;
      decision.progress = device_standing;
      decision.record = device_record;
      cuda::decide(decision, StepChoice<AdamStep>{device_choices, first, 2, kGroups, device_picked}, nullptr);
      expect_same(record, read(device_record, 1)[0]);
      const std::vector<AdamStep> device_steps = read(device_picked, kGroups);
      for (size_t group = 0; group < kGroups; ++group) {
        ASSERT_EQ(picked[group].lr, device_steps[group].lr);
        ASSERT_EQ(0, std::memcmp(&picked[group].grad_scale, &device_steps[group].grad_scale, sizeof(float)));
      }
      if (HasFatalFailure()) return;
    }
    reset();
  }
}

// Tops of flats of many runs, cut over several ranks, beside each other.
TEST_F(CudaDecide, AddsTheTopsOfAllRanksAsTheHostDoes) {
  std::mt19937_64 random(3);
  for (const int ranks : {1, 2, 3, 6, 8}) {
    std::vector<FlatTops> flat_tops;
    int64_t places = 0;
    for (const int64_t part_runs : {0, 1, 3, 31, 32, 77, 1001, 65537}) {
      for (int copies = 0; copies < 40; ++copies) {
        flat_tops.push_back({part_runs + copies, places, most_tops(part_runs + copies, ranks)});
        places += flat_tops.back().places;
      }
    }
    std::vector<int> rank_of_part;
    for (int rank = 0; rank < ranks; ++rank) rank_of_part.push_back((rank + 1) % ranks);
    std::vector<double> tops(static_cast<size_t>(places * ranks));
    for (double& top : tops) {
      top = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 40) - 70);
    }
    const auto flats = static_cast<int64_t>(flat_tops.size());
    for (const bool bad : {false, true}) {
      if (bad) tops[static_cast<size_t>(flat_tops[270].offset)] = HUGE_VAL;
      StepProgress progress;
      StepRecord record;
      Decision decision{tops.data(), places, rank_of_part.data(), ranks,  flat_tops.data(),
                        flats,       {},     &progress,           &record};
      auto* device_progress = static_cast<StepProgress*>(take_copy(&progress, sizeof(progress)));
      decide(decision);
      EXPECT_EQ(record.first_bad, bad ? 270 : -1);
      AdamStep step, *device_step = static_cast<AdamStep*>(take_copy(&step, sizeof(step)));
      decision.tops = static_cast<const double*>(take_copy(tops.data(), tops.size() * sizeof(double)));
      decision.rank_of_part =
          static_cast<const int*>(take_copy(rank_of_part.data(), rank_of_part.size() * sizeof(int)));
      decision.flat_tops =
          static_cast<const FlatTops*>(take_copy(flat_tops.data(), flat_tops.size() * sizeof(FlatTops)));
      decision.progress = device_progress;
      decision.record = static_cast<StepRecord*>(take(sizeof(StepRecord)));
      cuda::decide(decision, StepChoice<AdamStep>{device_step, 0, 1, 1, device_step}, nullptr);
      expect_same(record, read(decision.record, 1)[0]);
      if (HasFatalFailure()) return;
    }
    reset();
  }
}

}  // namespace
}  // namespace shoal::kernels
