// Whether a run would have the same bits at another number of ranks, in a sentence for the banner. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/config.h"

namespace shoal::train {

// What the config does not say.
struct SameBitsFacts {
  // Numbers of ranks, in order, at which the run's files and flags make the same leaves: the same train_batch_size in
  // micro-batches of the same size. This run's is among them.
  std::vector<int> worlds = {1};
  bool on_gpu = false;
  bool freezes = false;               // some weights are not trained
  bool deterministic = false;         // its kernels, where it is on one
  bool threads_follow_ranks = false;  // nobody gave --threads
  int threads = 1;                    // of each rank
};

// "same bits at 1, 2, 3, 6 ranks", or why not and what to do about it.
std::string same_bits_text(const Config& config, const SameBitsFacts& facts);

// Of a number of leaves: the numbers of data ranks that each can have as many.
std::vector<int> divisors_of(int64_t leaves);

}  // namespace shoal::train
