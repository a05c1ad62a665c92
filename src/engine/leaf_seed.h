// Random numbers that no number of ranks shows in: what a leaf draws is a function of a seed, the step and the leaf.
// Pure arithmetic; Training seeds the engine's generator by it, and bindings seed those of their own.
#pragma once

#include <cstdint>

namespace shoal {

// A leaf is one micro-batch of the global batch: with D data ranks, leaf v is micro-step v div D of data rank v mod D.
struct LeafPlace {
  int64_t step = 0;        // steps that were taken before, in the whole life of the model
  int64_t micro_step = 0;  // of the step
  int data_rank = 0;
  int data_ranks = 1;

  int64_t leaf() const { return micro_step * data_ranks + data_rank; }
};

// Well spread over 64 bits and over the lower 32, which are all that torch's CPU generator takes.
uint64_t leaf_seed(uint64_t seed, const LeafPlace& place);

}  // namespace shoal
