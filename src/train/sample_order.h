// Which sample comes when: a function of the seed and the position alone, so that any rank of any world finds its own
// samples without asking, and a run that stopped goes on where it was.
#pragma once

#include <cstdint>

namespace shoal::train {

// One to one from [0, count) to itself, another mapping for each key.
int64_t shuffled(int64_t index, int64_t count, uint64_t key);

// The training samples in an endless row: every epoch has each sample once, in an order of its own.
class SampleOrder {
 public:
  SampleOrder(uint64_t seed, int64_t samples);
  // The sample at a position of the row, counted from the start of training.
  int64_t at(int64_t position) const;
  int64_t samples() const { return samples_; }

 private:
  uint64_t seed_ = 0;
  int64_t samples_ = 0;
};

}  // namespace shoal::train
