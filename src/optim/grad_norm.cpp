// See grad_norm.h.
#include "optim/grad_norm.h"

#include <utility>

#include "base/check.h"

namespace shoal {

namespace {

template <class T>
std::shared_ptr<Slab> placed(const std::vector<T>& values, Queue& queue, const std::shared_ptr<Ledger>& ledger) {
  const size_t nbytes = values.size() * sizeof(T);
  std::shared_ptr<Slab> slab = queue.allocate(nbytes, ledger, MemoryKind::staging);
  if (nbytes > 0) queue.upload(slab->data(), values.data(), nbytes);
  return slab;
}

}  // namespace

GlobalNorm::GlobalNorm(Group& channel, Queue& queue, const ModelLayout& layout, std::shared_ptr<Ledger> ledger)
    : channel_(channel) {
  const NormTops tops = norm_tops(layout);
  SHOAL_CHECK_EQ(tops.rank_of_part.size(), static_cast<size_t>(channel.size()));
  flats_ = static_cast<int64_t>(tops.flats.size());
  rank_places_ = tops.places;
  all_ =
      queue.allocate(static_cast<size_t>(rank_places_ * channel.size()) * sizeof(double), ledger, MemoryKind::staging);
  flat_tops_ = placed(tops.flats, queue, ledger);
  rank_of_part_ = placed(tops.rank_of_part, queue, ledger);
}

void GlobalNorm::gather(const double* rank_tops, kernels::Decision& decision) {
  channel_
      .all_gather({.subject = {"gradient norm", "all units"},
                   .shard = rank_tops,
                   .whole = all_->data(),
                   .shard_nbytes = static_cast<size_t>(rank_places_) * sizeof(double),
                   .keep = nullptr})
      .wait();
  decision.tops = reinterpret_cast<const double*>(all_->data());
  decision.rank_places = rank_places_;
  decision.rank_of_part = reinterpret_cast<const int*>(rank_of_part_->data());
  decision.ranks = channel_.size();
  decision.flat_tops = reinterpret_cast<const FlatTops*>(flat_tops_->data());
  decision.flats = flats_;
}

}  // namespace shoal
