// On which tiers a rank's optimizer states and weights live when the config leaves it to Shoal: on the device what
// fits, then in host memory, then on disk. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "layout/flat_layout.h"
#include "shoal/config.h"

namespace shoal {

// Bytes that one rank may take.
struct Room {
  size_t device = 0;
  size_t host = 0;
};

// The config with offload sections that fit, and in `why` a line for people. Throws shoal::Error with what is missing
// where nothing fits. `activations` are those of one micro-step at its peak. The disk is used where offload_optimizer
// names a path.
struct Placement {
  OffloadConfig optimizer, param;
  std::string why;
};
Placement place(const ModelLayout& layout, const Config& config, const Room& room, size_t activations);

}  // namespace shoal
