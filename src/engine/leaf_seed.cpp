// See leaf_seed.h.
#include "engine/leaf_seed.h"

#include "base/mix.h"

namespace shoal {

uint64_t leaf_seed(uint64_t seed, const LeafPlace& place) {
  const uint64_t of_step = mixed(seed, static_cast<uint64_t>(place.step));
  return mixed(of_step, static_cast<uint64_t>(place.leaf()));
}

}  // namespace shoal
