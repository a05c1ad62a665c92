// What a user is told when a GPU has no memory left: when the engine is built, and in the middle of a pass.
#pragma once

#include <string>
#include <vector>

#include "device/cuda.h"
#include "shoal/config.h"
#include "shoal/error.h"
#include "shoal/meters_view.h"
#include "shoal/unit.h"

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

// While the engine is built.
struct NoRoom {
  std::string said;  // what could not be had
  MemoryPlan planned;
  size_t free_nbytes = 0, device_nbytes = 0;  // of the GPU, without this engine
  std::vector<std::string> settings;          // with which the states would fit what is free
  int world = 1;
};
Error explain(const NoRoom& event);
// What was to be built; the config with its placement carried out.
struct WantedEngine {
  const std::vector<Unit>& units;
  const Config& config;
  size_t groups = 1;
  int world = 1;
};
NoRoom no_room(const WantedEngine& wanted, const std::string& said, const cuda::DeviceFacts& gpu);

}  // namespace shoal
