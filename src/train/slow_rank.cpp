// See slow_rank.h.
#include "train/slow_rank.h"

#include <algorithm>

namespace shoal::train {

void SlowRank::see(const std::vector<RankTimes>& ranks, double step_seconds) {
  std::vector<double> waited;
  for (const RankTimes& rank : ranks) waited.push_back(rank.comm);
  std::swap(waited, before_);
  if (waited.size() != before_.size()) return;  // the first step: it also starts everything
  for (size_t rank = 0; rank < waited.size(); ++rank) waited[rank] = before_[rank] - waited[rank];
  const std::optional<int> found = of_step(waited, step_seconds);
  in_a_row_ = found && found == last_ ? in_a_row_ + 1 : found ? 1 : 0;
  last_ = found;
}

std::optional<int> SlowRank::of_step(const std::vector<double>& waited, double step_seconds) const {
  if (waited.size() < 2) return std::nullopt;
  const auto least = std::min_element(waited.begin(), waited.end());
  const double gap = std::max(kShare * step_seconds, kLeast);
  for (auto each = waited.begin(); each != waited.end(); ++each) {
    if (each != least && !(*each - *least >= gap)) return std::nullopt;
  }
  return static_cast<int>(least - waited.begin());
}

}  // namespace shoal::train
