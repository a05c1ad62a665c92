// See shoal/heap.h.
#include "shoal/heap.h"

#include <malloc.h>

namespace shoal {

void keep_freed_memory() {
  constexpr int kMostFromTheHeap = 32 << 20;  // glibc takes no more
  mallopt(M_MMAP_THRESHOLD, kMostFromTheHeap);
  mallopt(M_TRIM_THRESHOLD, -1);  // none goes back
}

}  // namespace shoal
