// What the global gradient norm is made of: the sums of squares of all ranks, which the decision adds up by
// [Note: the tree of sums] in layout/sum_tree.h, flat by flat, and then flats in order, in fp64. The norm itself is
// part of a step's decision, kernels/decide.h. One that is not finite is the overflow signal, in every dtype and at
// every stage.
#pragma once

#include <memory>

#include "device/queue.h"
#include "layout/norm_tops.h"
#include "shoal/group.h"

namespace shoal {

class GlobalNorm {
 public:
  // Channel and queue outlive this object. The channel is of all ranks of the layout's mesh.
  GlobalNorm(Group& channel, Queue& queue, const ModelLayout& layout, std::shared_ptr<Ledger> ledger);

  // Every rank gives the tops of its shards, in the queue's memory. What the queue is given later finds those of all
  // ranks where the decision says, until the next call.
  void gather(const double* rank_tops, kernels::Decision& decision);

 private:
  Group& channel_;
  int64_t flats_, rank_places_;
  std::shared_ptr<Slab> all_;  // the tops of all ranks, rank by rank
  std::shared_ptr<Slab> flat_tops_, rank_of_part_;
};

}  // namespace shoal
