// See update_split.h.
#include "plan/update_split.h"

#include <algorithm>

namespace shoal {

// With a share f of the host, copies to the host carry (1 - f) * states - ring + f * host_nbytes, more than those back,
// and the host has f * numel to update. Both take as long at this f. A share that leaves no less to copy helps nobody.
double host_share(const SplitWork& work, const UpdateRates& rates) {
  constexpr double kMost = 0.9;
  if (work.state_nbytes <= work.ring_nbytes || work.state_nbytes <= work.host_nbytes) return 0;
  if (rates.bus_nbytes <= 0 || rates.host_numel <= 0) return 0;
  const auto states = static_cast<double>(work.state_nbytes);
  const double beyond_ring = states - static_cast<double>(work.ring_nbytes);
  const double on_bus = (states - static_cast<double>(work.host_nbytes)) / rates.bus_nbytes;
  const double on_host = static_cast<double>(work.numel) / rates.host_numel;
  return std::min(kMost, beyond_ring / rates.bus_nbytes / (on_bus + on_host));
}

std::vector<size_t> spread_over(const std::vector<int64_t>& numels, double share) {
  std::vector<size_t> chosen;
  double due = 0;  // elements that should be chosen by now and are not
  for (size_t i = 0; i < numels.size(); ++i) {
    const auto numel = static_cast<double>(numels[i]);
    due += numel * share;
    if (due < numel || numels[i] == 0) continue;
    due -= numel;
    chosen.push_back(i);
  }
  return chosen;
}

}  // namespace shoal
