// How an update is split between a GPU, to which states of the host come, and the host itself. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal {

struct UpdateRates {
  double bus_nbytes = 0;  // a second, each way
  double host_numel = 0;  // elements that the host updates in a second
};

// Of the states that would come to the GPU.
struct SplitWork {
  int64_t numel = 0;
  size_t state_nbytes = 0;
  size_t ring_nbytes = 0;  // of them that are there when the update begins
  size_t host_nbytes = 0;  // weights and gradients that come to the host if it updates all
};

// The share of the elements that the host updates so that both end together: none, where the ring holds all states or
// what comes to the host is as much as the states; and never all.
double host_share(const SplitWork& work, const UpdateRates& rates);

// Which of these chunks make that share of all elements, spread evenly over them, the first as late as can be: what is
// needed first is then updated by the GPU, which is there first.
std::vector<size_t> spread_over(const std::vector<int64_t>& numels, double share);

}  // namespace shoal
