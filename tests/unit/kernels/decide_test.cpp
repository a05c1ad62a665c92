// A step's decision against the rules written out once more, as one would on paper: the norm, clipping, and the loss
// scale of DeepSpeed's DynamicLossScaler.
#include "kernels/decide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/decide_body.h"
#include "kernels/update.h"
#include "unit/kernels/step_histories.h"

namespace shoal::kernels {
namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b)); }

struct PlainScale {
  explicit PlainScale(const ScaleRules& rules_in, const ScaleState& first)
      : rules(rules_in), scale(first.scale), left(first.hysteresis_left) {}
  bool update(bool overflow) {
    if (!rules.dynamic) return true;
    if (overflow) {
      if (left > 1) {
        --left;
      } else {
        if (scale == rules.min_scale) return false;
        scale = std::max(scale / 2, rules.min_scale);
      }
      last_overflow = step;
    } else {
      if (rules.consecutive) left = rules.hysteresis;
      const int64_t good = step - last_overflow - 1;
      if (good > 0 && good % rules.window == 0) {
        if (!rules.consecutive) left = rules.hysteresis;
        scale *= 2;
      }
    }
    ++step;
    return true;
  }
  ScaleRules rules;
  double scale;
  int64_t left, step = 0, last_overflow = -1;
};

// The sum of [begin, begin + count) of these, half by half; what is past the end is absent.
double tree_of(const std::vector<double>& values, size_t begin, size_t count) {
  if (count == 1) return values[begin];
  const double left = tree_of(values, begin, count / 2);
  return begin + count / 2 < values.size() ? left + tree_of(values, begin + count / 2, count / 2) : left;
}

TEST(Decide, TakesAStepThatIsNotFiniteWhereTheRulesSaySo) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    const double sums[] = {4.0, bad};
    const FlatTops flat_tops[] = {{1, 0, 1}, {1, 1, 1}};
    const int first = 0;
    StepRules rules;
    rules.gradient_clipping = 1;
    for (const bool any : {false, true}) {
      rules.takes_any = any;
      StepProgress progress;
      StepRecord record;
      decide({sums, 2, &first, 1, flat_tops, 2, rules, &progress, &record});
      EXPECT_EQ(record.applied, any ? 1 : 0);
      EXPECT_EQ(record.first_bad, 1);
      EXPECT_EQ(progress.applied, any ? 1 : 0);
      EXPECT_EQ(progress.skipped, any ? 0 : 1);
      EXPECT_EQ(record.grad_scale, 1.0) << "what is not finite clips nothing";
    }
  }
}

TEST(Decide, FollowsTheRulesThroughRandomHistories) {
  int skipped = 0, exhausted = 0, clipped = 0;
  for (const StepHistory& history : step_histories(40)) {
    PlainScale plain(history.rules.scale, history.first.scale);
    StepProgress progress = history.first;
    int64_t applied = progress.applied, skipped_here = 0;
    const std::vector<FlatTops> flat_tops = history.flat_tops();
    const std::vector<int> rank_of_part = history.rank_of_part();
    for (const std::vector<double>& sums : history.sums) {
      StepRecord record;
      decide({sums.data(), history.flats, rank_of_part.data(), history.ranks, flat_tops.data(), history.flats,
              history.rules, &progress, &record});

      double sum = 0;
      std::vector<double> of_flats;
      for (int64_t flat = 0; flat < history.flats; ++flat) {
        std::vector<double> of_parts;
        for (const int rank : rank_of_part) {
          of_parts.push_back(sums[static_cast<size_t>(rank * history.flats + flat)]);
        }
        of_flats.push_back(tree_of(of_parts, 0, 8));
        sum += of_flats.back();
      }
      const double norm = std::sqrt(sum) / plain.scale;
      const bool finite = std::isfinite(std::sqrt(sum));
      int64_t bad = -1;
      for (int64_t flat = 0; flat < history.flats && !finite && bad < 0; ++flat) {
        if (!std::isfinite(of_flats[static_cast<size_t>(flat)])) bad = flat;
      }
      ASSERT_EQ(record.applied, finite ? 1 : 0);
      ASSERT_EQ(record.first_bad, bad);
      ASSERT_TRUE(same_bits(record.grad_norm, norm)) << record.grad_norm << " " << norm;
      ASSERT_EQ(record.loss_scale, plain.scale);
      ASSERT_EQ(record.steps_before, applied);
      if (finite) {
        const double limit = history.rules.gradient_clipping;
        const double clip = limit > 0 ? std::max(1.0, (norm + 1e-6) / limit) : 1.0;
        ASSERT_TRUE(same_bits(record.grad_scale, 1.0 / (plain.scale * clip)));
        if (clip > 1) ++clipped;
      }
      const bool goes_on = plain.update(!finite);
      (finite ? applied : skipped_here) += 1;
      ASSERT_EQ(record.scale_exhausted, goes_on ? 0 : 1);
      ASSERT_EQ(record.after.applied, applied);
      ASSERT_EQ(record.after.skipped, skipped_here);
      ASSERT_EQ(record.after.scale.scale, plain.scale);
      ASSERT_EQ(record.after.scale.hysteresis_left, plain.left);
      ASSERT_EQ(record.after.backward_scale, static_cast<float>(plain.scale));
      ASSERT_EQ(progress.applied, applied);
      if (!goes_on) ++exhausted;
    }
    skipped += static_cast<int>(skipped_here);
  }
  EXPECT_GT(skipped, 100);
  EXPECT_GT(exhausted, 0);
  EXPECT_GT(clipped, 100);
}

TEST(Decide, PicksTheConstantsOfTheStepsAppliedBefore) {
  std::vector<AdamStep> choices(6);  // three numbers of steps, two groups
  for (size_t i = 0; i < choices.size(); ++i) choices[i].lr = static_cast<float>(i);
  std::vector<AdamStep> picked(2);
  StepRecord record;
  record.grad_scale = 0.1;
  for (int64_t before = 4; before <= 6; ++before) {
    record.steps_before = before;
    const StepChoice<AdamStep> choice{choices.data(), 4, 3, 2, picked.data()};
    for (int64_t group = 0; group < 2; ++group) pick(choice, record, group);
    EXPECT_EQ(picked[0].lr, static_cast<float>(2 * (before - 4)));
    EXPECT_EQ(picked[1].lr, static_cast<float>(2 * (before - 4) + 1));
    EXPECT_EQ(picked[1].grad_scale, 0.1f);
  }
}

}  // namespace
}  // namespace shoal::kernels
