// See grad_norm.h.
#include "optim/grad_norm.h"

#include <cmath>

namespace shoal {

GradNorm norm_of(const std::vector<double>& square_sums, size_t ranks) {
  GradNorm norm;
  double sum = 0;
  for (const double flat_sum : square_sums) sum += flat_sum;
  norm.value = std::sqrt(sum);
  norm.finite = std::isfinite(norm.value);
  const size_t count = square_sums.size() / ranks;
  for (size_t flat = 0; flat < count && !norm.finite && norm.first_bad_flat < 0; ++flat) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (!std::isfinite(square_sums[rank * count + flat])) norm.first_bad_flat = static_cast<int>(flat);
    }
  }
  return norm;
}

GlobalNorm::GlobalNorm(Group& channel, Queue& queue, size_t count, std::shared_ptr<Ledger> ledger)
    : channel_(channel),
      queue_(queue),
      count_(count),
      all_(queue.allocate(count * static_cast<size_t>(channel.size()) * sizeof(double), std::move(ledger),
                          MemoryKind::staging)) {}

GradNorm GlobalNorm::of(const double* shard_square_sums) {
  channel_
      .all_gather({.subject = {"gradient norm", "all units"},
                   .shard = shard_square_sums,
                   .whole = all_->data(),
                   .shard_nbytes = count_ * sizeof(double),
                   .keep = nullptr})
      .wait();
  std::vector<double> sums(count_ * static_cast<size_t>(channel_.size()));
  queue_.download(sums.data(), all_->data(), sums.size() * sizeof(double));
  return norm_of(sums, static_cast<size_t>(channel_.size()));
}

}  // namespace shoal
