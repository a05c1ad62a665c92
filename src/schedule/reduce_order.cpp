// See reduce_order.h.
#include "schedule/reduce_order.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

ReduceOrder::ReduceOrder(std::vector<bool> has_gradients)
    : expected_(has_gradients.size(), 0), ready_(has_gradients.size(), 0) {
  for (int unit = static_cast<int>(has_gradients.size()) - 1; unit >= 0; --unit) {
    if (has_gradients[unit]) order_.push_back(unit);
  }
}

void ReduceOrder::expect(int unit) { expected_[unit] = 1; }

std::vector<int> ReduceOrder::ready(int unit) {
  SHOAL_CHECK(!ready_[unit], "unit {} is ready twice in one pass", unit);
  ready_[unit] = 1;
  readiness_.push_back(unit);
  return advance(false);
}

std::vector<int> ReduceOrder::finish() {
  std::vector<int> rest = advance(true);
  for (const int unit : order_) {
    if (std::find(readiness_.begin(), readiness_.end(), unit) == readiness_.end()) readiness_.push_back(unit);
  }
  last_readiness_ = std::move(readiness_);
  readiness_.clear();
  next_ = 0;
  std::fill(expected_.begin(), expected_.end(), 0);
  std::fill(ready_.begin(), ready_.end(), 0);
  return rest;
}

void ReduceOrder::adopt(std::vector<int> order) {
  SHOAL_CHECK_EQ(next_, 0u);
  SHOAL_CHECK(std::is_permutation(order.begin(), order.end(), order_.begin(), order_.end()), "not a permutation");
  order_ = std::move(order);
}

// Up to the last unit that is ready: a unit that is not used here is reduced in the wake of one that is, when its peers
// are likely to have come so far too, and not ahead of it.
std::vector<int> ReduceOrder::advance(bool to_the_end) {
  size_t end = to_the_end ? order_.size() : next_;
  for (size_t entry = next_; entry < order_.size() && !to_the_end; ++entry) {
    const auto unit = static_cast<size_t>(order_[entry]);
    if (ready_[unit]) end = entry + 1;
    if (expected_[unit] && !ready_[unit]) break;
  }
  std::vector<int> now(order_.begin() + static_cast<std::ptrdiff_t>(next_),
                       order_.begin() + static_cast<std::ptrdiff_t>(end));
  next_ = end;
  return now;
}

}  // namespace shoal
