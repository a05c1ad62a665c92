// What a user is told when a GPU has no memory left in the middle of a pass.
#pragma once

#include <string>

#include "shoal/engine.h"
#include "shoal/error.h"

namespace shoal {

struct OutOfMemory {
  std::string unit;   // at work when it happened
  std::string phase;  // "forward" or "backward"
  std::string said;   // by torch's allocator
  MemoryReport memory;
  int stage = 0;
  int world = 1;
  int64_t micro_batch = 1;
  size_t device_nbytes = 0;  // of the GPU
};

// Names the unit, what the model states take by plan, and what would fit.
Error explain(const OutOfMemory& event);

}  // namespace shoal
