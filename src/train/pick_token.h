// The next token from a model's logits: the likeliest, or one drawn by their probabilities.
#pragma once

#include <cstdint>
#include <span>

namespace shoal::train {

// temperature 0: the likeliest, the first of equals. Otherwise token i has probability proportional to
// exp(logits[i] / temperature), and `even`, a number from [0, 1), decides which it is.
int64_t pick_token(std::span<const float> logits, double temperature, double even);

}  // namespace shoal::train
