// Finds the rank that the others wait for, when it is the same one over many steps, from what ranks have waited for
// each other. Pure: every rank knows the same numbers and finds the same rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/step_exchange.h"

namespace shoal::train {

class SlowRank {
 public:
  static constexpr int kSteps = 10;        // in a row that the others waited for it
  static constexpr double kShare = 0.1;    // of the time of a step that the others waited longer than it, each of them
  static constexpr double kLeast = 0.001;  // seconds: below, the waits are those of any collective

  // What each rank has spent since the run began, and how long the last step took. Ranks' waits of a step may be known
  // a step later: rows of steps even that out.
  void see(const std::vector<RankTimes>& ranks, double step_seconds);

  // The rank that ranks wait for now.
  std::optional<int> now() const { return in_a_row_ >= kSteps ? last_ : std::nullopt; }

 private:
  // That the others waited for in one step: the one that waited least, if all others waited longer.
  std::optional<int> of_step(const std::vector<double>& waited, double step_seconds) const;

  std::vector<double> before_;  // waits of each rank, up to the step before
  std::optional<int> last_;
  int in_a_row_ = 0;
};

}  // namespace shoal::train
