// The global gradient norm by the contract: blocks in order, flats in order, ranks in order, in fp64.
// A norm that is not finite is the overflow signal, in every dtype and at every stage.
#pragma once

#include <vector>

#include "shoal/group.h"

namespace shoal {

struct GradNorm {
  double value = 0;  // still multiplied by the loss scale
  bool finite = true;
  int first_bad_flat = -1;  // index into the sums given, of the first flat that is not finite on any rank
};

// Every rank gives the sums of squares of its shards and gets the same answer. Blocks.
GradNorm global_grad_norm(Group& channel, const std::vector<double>& shard_square_sums);

}  // namespace shoal
