// See grad_norm.h.
#include "optim/grad_norm.h"

#include <cmath>

namespace shoal {

GradNorm global_grad_norm(Group& channel, const std::vector<double>& shard_square_sums) {
  const size_t count = shard_square_sums.size();
  std::vector<double> all(count * static_cast<size_t>(channel.size()));
  channel
      .all_gather({.subject = {"gradient norm", "all units"},
                   .shard = shard_square_sums.data(),
                   .whole = all.data(),
                   .shard_nbytes = count * sizeof(double),
                   .keep = nullptr})
      .wait();
  GradNorm norm;
  double sum = 0;
  for (const double flat_sum : all) sum += flat_sum;
  norm.value = std::sqrt(sum);
  norm.finite = std::isfinite(norm.value);
  for (size_t flat = 0; flat < count && !norm.finite && norm.first_bad_flat < 0; ++flat) {
    for (size_t rank = 0; rank < static_cast<size_t>(channel.size()); ++rank) {
      if (!std::isfinite(all[rank * count + flat])) norm.first_bad_flat = static_cast<int>(flat);
    }
  }
  return norm;
}

}  // namespace shoal
