// The doors to an engine's state: when it may be read or written, and what belongs to a checkpoint beside it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/training.h"
#include "engine/user_gathers.h"

namespace shoal {

class StateDoors {
 public:
  // All of them outlive this.
  StateDoors(EngineParts& parts, const UserGathers& gathers, Training& training)
      : parts_(parts), gathers_(gathers), training_(training) {}

  void check_between_steps(const std::string& place);
  // The state is that of the last step until the next one is taken, so it may be read between micro-steps too.
  void check_readable(const std::string& place);

  void read(const StateRun& part, float* values);
  void write(const StateRun& part, const float* values);
  void edit(const StateRun& part, const float* values);
  std::shared_ptr<std::byte> picture_memory(size_t nbytes);
  // Brings whole weights to where they are read.
  void publish(const std::string& place);

  std::vector<StateRun> owned_gradients();
  std::vector<StateRun> kept_gradients();
  void read_gradient(const StateRun& part, float* values);
  void write_gradient(const StateRun& part, const float* values);

  EngineProgress progress();
  void finish_restore(const EngineProgress& progress);

 private:
  std::vector<StateRun> trained_weights(std::vector<StateRun> runs) const;

  EngineParts& parts_;
  const UserGathers& gathers_;
  Training& training_;
};

}  // namespace shoal
