// Made-up tokens of known entropy: --data synthetic. A model that has learned all there is to learn has a mean loss
// equal to that entropy, so a test knows the loss to reach.
//
// Token i is, with probability `surprise`, drawn evenly from the vocabulary; otherwise it is the one successor of
// token i - 1. Each token is a function of seed and index: from any index the walk goes back to the last draw, which on
// average is 1 / surprise tokens away.
#pragma once

#include <cstdint>
#include <memory>

#include "train/token_source.h"

namespace shoal::train {

struct SyntheticOptions {
  int64_t vocab = 256;
  int64_t numel = int64_t{1} << 24;
  double surprise = 0.2;  // above 0, at most 1
  uint64_t seed = 1;
};

std::unique_ptr<TokenSource> make_synthetic(const SyntheticOptions& options);

// Of a token given the one before it, in nats.
double entropy_of(const SyntheticOptions& options);

}  // namespace shoal::train
