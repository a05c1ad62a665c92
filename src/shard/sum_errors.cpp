// See sum_errors.h.
#include "shard/sum_errors.h"

#include "comm/group/full_group.h"
#include "plan/memory.h"

namespace shoal {

SumErrors::SumErrors(const ModelLayout& layout, const GradientOptions& options, const ErrorRule& rule, Group& channel,
                     const std::shared_ptr<Ledger>& ledger)
    : rule_(rule) {
  size_t all_nbytes = 0;
  for (const UnitLayout& unit : layout.units) {
    std::vector<Flat>& flats = units_.emplace_back();
    for (const FlatLayout& flat : unit.flats) {
      const size_t nbytes = error_nbytes(flat, options, layout.mesh);
      flats.push_back({.offset = all_nbytes, .is_kept = nbytes > 0});
      all_nbytes += nbytes;
    }
  }
  if (all_nbytes > 0) memory_ = full(channel).allocate(all_nbytes, ledger, MemoryKind::gradients);
}

kernels::ErrorFeedback SumErrors::feed_back(int unit, int flat) {
  Flat& errors = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat)];
  if (!errors.is_kept) return {};
  const bool forgets = errors.fed_back == 0;
  ++errors.fed_back;
  if (errors.fed_back == rule_.reset) errors.fed_back = 0;
  return {.errors = memory_->data() + errors.offset, .keep = rule_.keep, .forgets = forgets};
}

void SumErrors::forget() {
  for (std::vector<Flat>& flats : units_) {
    for (Flat& flat : flats) flat.fed_back = 0;
  }
}

}  // namespace shoal
