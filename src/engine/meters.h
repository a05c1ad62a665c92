// What an engine has cost so far: bytes held, sent and moved, seconds waited.
#pragma once

#include "engine/engine_parts.h"
#include "engine/step_line.h"
#include "shoal/meters_view.h"

namespace shoal {

class Meters {
 public:
  // The parts outlive this.
  explicit Meters(EngineParts& parts) : parts_(parts) {}

  MemoryReport memory() const;
  // Weights and gradients together.
  Traffic traffic() const;
  void log_collectives(bool on) const;
  std::vector<CollectiveRecord> take_collectives() const;
  std::string transport() const;
  // How long other ranks were waited for: by this rank's threads, and by its GPU.
  double waited_seconds() const;
  CommTimes comm_times() const;
  // Of states and weights.
  DiskTraffic disk() const;
  HostTraffic host() const;
  // Adds what was waited for disk and host since the last call: since the last step, which is where deferred updates
  // wait.
  void count_waits(StepTimes& times);

 private:
  // How long the GPU waited for host memory: for states, gradients, and weights that live there or come through it
  // from disk. A gather of those brings them over the bus first; it counts here, the ranks' part with it.
  double host_seconds() const;

  EngineParts& parts_;
  double disk_before_ = 0, host_before_ = 0;
};

}  // namespace shoal
