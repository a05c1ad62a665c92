// Runs of steps for tests of kernels/decide.h: rules, and the sums of squares that each step finds, some not finite.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/decide.h"

namespace shoal::kernels {

struct StepHistory {
  StepRules rules;
  StepProgress first;
  int64_t ranks = 1, flats = 1;
  std::vector<std::vector<double>> sums;  // of each step: of each flat a run, rank by rank

  // Every rank has one run of each flat; parts are in the opposite order of ranks.
  std::vector<FlatTops> flat_tops() const {
    std::vector<FlatTops> tops;
    for (int64_t flat = 0; flat < flats; ++flat) tops.push_back({1, flat, 1});
    return tops;
  }
  std::vector<int> rank_of_part() const {
    std::vector<int> order;
    for (int64_t rank = ranks - 1; rank >= 0; --rank) order.push_back(static_cast<int>(rank));
    return order;
  }
};

inline std::vector<StepHistory> step_histories(int steps) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  std::mt19937_64 random(7);
  const auto draw = [&](uint64_t below) { return random() % below; };
  const auto fraction = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<StepHistory> histories;
  for (const int64_t ranks : {1, 2, 3, 8}) {
    for (const int64_t flats : {0, 1, 2, 37, 700}) {
      for (const bool dynamic : {false, true}) {
        StepHistory history;
        history.ranks = ranks;
        history.flats = flats;
        history.rules.scale = {.dynamic = dynamic,
                               .min_scale = draw(2) == 0 ? 1.0 : 3.0,
                               .window = static_cast<int64_t>(1 + draw(4)),
                               .hysteresis = static_cast<int64_t>(1 + draw(3)),
                               .consecutive = draw(2) == 0};
        history.rules.gradient_clipping = draw(3) == 0 ? 0.0 : fraction() * 4;
        history.first.scale = {.scale = dynamic ? 16.0 : 384.0, .hysteresis_left = history.rules.scale.hysteresis};
        history.first.applied = static_cast<int64_t>(draw(3));
        for (int step = 0; step < steps; ++step) {
          std::vector<double> sums(static_cast<size_t>(ranks * flats));
          for (double& sum : sums) sum = fraction() * (draw(50) == 0 ? 1e290 : draw(7) == 0 ? 1e-300 : 3.0);
          if (!sums.empty() && draw(3) == 0) {
            const double bad[] = {kNan, kInfinity, -kInfinity, kMost, -1.0};
            for (uint64_t count = 1 + draw(2); count > 0; --count) sums[draw(sums.size())] = bad[draw(5)];
          }
          history.sums.push_back(std::move(sums));
        }
        histories.push_back(std::move(history));
      }
    }
  }
  return histories;
}

}  // namespace shoal::kernels
