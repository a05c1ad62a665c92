// What the global gradient norm is made of, by the contract: blocks in order, flats in order, ranks in order, in fp64.
// The norm itself is part of a step's decision, kernels/decide.h. One that is not finite is the overflow signal, in
// every dtype and at every stage.
#pragma once

#include <memory>

#include "device/queue.h"
#include "shoal/group.h"

namespace shoal {

class GlobalNorm {
 public:
  // For this many sums a rank. Channel and queue outlive this object.
  GlobalNorm(Group& channel, Queue& queue, size_t count, std::shared_ptr<Ledger> ledger);

  // Every rank gives the sums of squares of its shards, in the queue's memory. What the queue is given later finds the
  // sums of all ranks there, rank by rank, until the next call.
  const double* gather(const double* shard_square_sums);
  size_t count() const { return count_; }

 private:
  Group& channel_;
  size_t count_;
  std::shared_ptr<Slab> all_;  // the sums of all ranks
};

}  // namespace shoal
