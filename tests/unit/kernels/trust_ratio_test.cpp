#include "kernels/trust_ratio.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace shoal::kernels {
namespace {

LambStep group_step(float lr) { return {.lr = lr, .max_coeff = 4, .min_coeff = 0.5f}; }

// The step of a parameter of one run, by its squares.
LambStep step_of(double weight_squares, double update_squares) {
  const double tops[] = {weight_squares, update_squares};
  const TopRange range{.end = 1, .weight = 0, .update = 1};
  const TrustParam param{.first_range = 0, .ranges = 1, .group = 1};
  const LambStep groups[] = {group_step(1), group_step(2)};
  LambStep step;
  trust_ratios({tops, &range, &param, 1, groups, &step});
  return step;
}

TEST(TrustRatio, IsOfTheNormsBetweenItsBounds) {
  EXPECT_EQ(step_of(36, 9).ratio, 2);
  EXPECT_EQ(step_of(36, 0.01).ratio, 4);
  EXPECT_EQ(step_of(1, 100).ratio, 0.5f);
  EXPECT_EQ(step_of(0, 9).ratio, 1);
  EXPECT_EQ(step_of(36, 0).ratio, 1);
  EXPECT_TRUE(step_of(36, 9).applies);
  EXPECT_EQ(step_of(36, 9).lr, 2) << "of its group";
  EXPECT_TRUE(std::isnan(step_of(std::nan(""), 9).ratio)) << "what is not a number stays none";
}

TEST(TrustRatio, OfAParameterInPartsIsThatOfTheWhole) {
  std::mt19937_64 random(1);
  constexpr int64_t kRuns = 77;
  std::vector<double> weight, update;
  for (int64_t run = 0; run < kRuns; ++run) {
    weight.push_back(std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 40)));
    update.push_back(std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 40)));
  }
  std::vector<uint32_t> ratios;
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{77}, {30, 77}, {1, 2, 76, 77}, {32, 64, 77}}) {
    std::vector<double> tops;
    std::vector<TopRange> ranges;
    int64_t begin = 0;
    for (const int64_t end : ends) {
      TopRange range{.end = end};
      const auto add = [&](const std::vector<double>& runs) {
        const auto at = static_cast<int64_t>(tops.size());
        SumStack stack(begin);
        for (int64_t run = begin; run < end; ++run) stack.push(0, runs[static_cast<size_t>(run)]);
        for (int i = 0; i < stack.count(); ++i) tops.push_back(stack.sum(i));
        return at;
      };
      range.weight = add(weight);
      range.update = add(update);
      ranges.push_back(range);
      begin = end;
    }
    const TrustParam param{.first_range = 0, .ranges = static_cast<int64_t>(ranges.size()), .group = 0};
    const LambStep group = group_step(1);
    LambStep step;
    trust_ratios({tops.data(), ranges.data(), &param, 1, &group, &step});
    ratios.push_back(std::bit_cast<uint32_t>(step.ratio));
  }
  for (const uint32_t ratio : ratios) EXPECT_EQ(ratio, ratios[0]);
}

}  // namespace
}  // namespace shoal::kernels
