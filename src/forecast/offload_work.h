// What of a rank's states and weights is off its GPU, unit by unit, and who updates it: the bytes that a step moves
// over the bus and the disk. From the chunks and shards that the engine keeps. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/cluster.h"
#include "layout/flat_layout.h"
#include "shoal/config.h"

namespace shoal::forecast {

struct UnitOffload {
  double streamed = 0;       // bytes of states that come to the GPU and go back
  double host_numel = 0;     // elements that the host updates
  double host_update = 0;    // bytes of host memory that their update reads and writes
  double host_gradient = 0;  // bytes of gradients that come to the host for it
  double host_weight = 0;    // bytes of weights that go back to the GPU after it
  double disk = 0;           // bytes of states that are read and written
  double weights = 0;        // bytes of this rank's weights that come from the host for each gather
  double disk_weights = 0;   // the same from the disk
};

struct OffloadWork {
  std::vector<UnitOffload> units;
  double ring = 0;               // bytes of the GPU that streamed states pass through
  bool early_gradients = false;  // they leave as they are made, not when the step is decided

  bool any() const;
};

// Of a rank with a GPU. `ring`: bytes of the GPU that states may pass through, as the run lets it grow; 0: what the
// config begins with.
OffloadWork offload_work(const ModelLayout& layout, const Config& config, const Cluster& cluster, const Calibration& by,
                         double ring = 0);

}  // namespace shoal::forecast
