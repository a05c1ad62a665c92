// See grad_norm.h.
#include "optim/grad_norm.h"

#include <utility>

namespace shoal {

GlobalNorm::GlobalNorm(Group& channel, Queue& queue, size_t count, std::shared_ptr<Ledger> ledger)
    : channel_(channel),
      count_(count),
      all_(queue.allocate(count * static_cast<size_t>(channel.size()) * sizeof(double), std::move(ledger),
                          MemoryKind::staging)) {}

const double* GlobalNorm::gather(const double* shard_square_sums) {
  channel_
      .all_gather({.subject = {"gradient norm", "all units"},
                   .shard = shard_square_sums,
                   .whole = all_->data(),
                   .shard_nbytes = count_ * sizeof(double),
                   .keep = nullptr})
      .wait();
  return reinterpret_cast<const double*>(all_->data());
}

}  // namespace shoal
