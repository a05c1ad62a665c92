// From a model and a config to a question of time, by the functions by which the engine builds: layout, gradients,
// limits of gathers, chunks of states. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "forecast/step_time.h"
#include "plan/stage_plans.h"
#include "shoal/config.h"

namespace shoal::forecast {

// Over which ranks a copy of the model is cut.
struct Sharding {
  enum class Kind : uint8_t {
    world,        // all ranks
    group,        // so many; replicas between the groups (mics_shard_size)
    second_copy,  // all, and for backward a second copy of the weights over so many (zero_hpz_partition_size)
  };
  Kind kind = Kind::world;
  int ranks = 0;  // of a group

  bool operator==(const Sharding&) const = default;
};
// "all ranks", "groups of 8", "hpZ of 8".
std::string name_of(const Sharding& sharding);

// The config so cut, whatever it said of it; and what a config says.
Config with_sharding(const Config& config, const Sharding& sharding);
Sharding sharding_of(const Config& config, int world);

struct Ask {
  const PlanSubject& subject;  // units in the config's dtypes, as many as shape has parts
  const Config& config;
  DecoderShape shape;
  Workload work;
  Cluster cluster;
  int world = 1;
  double ring = 0;  // bytes of the GPU through which states of the host may pass; 0: what the config begins with
};

StepQuestion question_of(const Ask& ask, const Calibration& calibration = fitted_calibration());

struct Forecast {
  StepTime time;
  Throughput rate;
  int64_t micro_steps = 1;
};
// Throws shoal::Error where a number of the cluster that the step needs is missing or 0.
Forecast forecast_step(const Ask& ask, const Calibration& calibration = fitted_calibration());

}  // namespace shoal::forecast
