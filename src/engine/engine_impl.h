// What stands behind an Engine and its views. Composed here, in the order in which it comes to be.
#pragma once

#include "engine/engine_parts.h"
#include "engine/meters.h"
#include "engine/state_doors.h"
#include "engine/training.h"
#include "engine/user_gathers.h"

namespace shoal {

class EngineImpl {
 public:
  EngineImpl(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options)
      : parts(units, config, world, options), training(parts, gathers, meters, options) {}

  ~EngineImpl() { parts.settle(); }  // while what the user gathered is still open
  EngineImpl(const EngineImpl&) = delete;
  EngineImpl& operator=(const EngineImpl&) = delete;

  EngineParts parts;
  UserGathers gathers{parts};
  Meters meters{parts};
  Training training;
  StateDoors doors{parts, gathers, training};
};

}  // namespace shoal
