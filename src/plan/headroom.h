// Of a memory, what a rank's plan may fill. The rest stays free for what no plan counts: torch's allocator and the
// transports on a GPU, the system and the page cache on a host. `placement: auto`, `--recompute auto` and `shoal plan`
// all count with it. Pure.
#pragma once

#include <cstddef>

namespace shoal {

size_t usable_of_gpu(size_t nbytes);   // 97 %
size_t usable_of_host(size_t nbytes);  // 90 %

}  // namespace shoal
