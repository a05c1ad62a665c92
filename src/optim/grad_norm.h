// The global gradient norm by the contract: blocks in order, flats in order, ranks in order, in fp64.
// A norm that is not finite is the overflow signal, in every dtype and at every stage.
#pragma once

#include <memory>
#include <vector>

#include "device/queue.h"
#include "shoal/group.h"

namespace shoal {

struct GradNorm {
  double value = 0;  // still multiplied by the loss scale
  bool finite = true;
  int first_bad_flat = -1;  // index into the sums given, of the first flat that is not finite on any rank
};

// From the sums of all ranks, rank by rank.
GradNorm norm_of(const std::vector<double>& square_sums, size_t ranks);

class GlobalNorm {
 public:
  // For this many sums a rank. Channel and queue outlive this object.
  GlobalNorm(Group& channel, Queue& queue, size_t count, std::shared_ptr<Ledger> ledger);

  // Every rank gives the sums of squares of its shards, in the queue's memory, and gets the same answer. Blocks.
  GradNorm of(const double* shard_square_sums);

 private:
  Group& channel_;
  Queue& queue_;
  size_t count_;
  std::shared_ptr<Slab> all_;  // the sums of all ranks
};

}  // namespace shoal
