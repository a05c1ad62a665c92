// See headroom.h.
#include "plan/headroom.h"

namespace shoal {

namespace {

size_t share_of(size_t nbytes, double share) { return static_cast<size_t>(static_cast<double>(nbytes) * share); }

}  // namespace

size_t usable_of_gpu(size_t nbytes) { return share_of(nbytes, 0.97); }
size_t usable_of_host(size_t nbytes) { return share_of(nbytes, 0.9); }

}  // namespace shoal
