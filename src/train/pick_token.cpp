// See pick_token.h.
#include "train/pick_token.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace shoal::train {

int64_t pick_token(std::span<const float> logits, double temperature, double even) {
  SHOAL_CHECK(!logits.empty());
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return likeliest - logits.begin();
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : logits) {
    weights.push_back(std::exp((logit - *likeliest) / temperature));
    sum += weights.back();
  }
  double rest = even * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return static_cast<int64_t>(i);
  }
  return likeliest - logits.begin();  // rounding left a crumb beyond the last
}

}  // namespace shoal::train
