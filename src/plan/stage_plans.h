// The plan of every stage side by side, as `shoal plan` shows it. Counts with the engine's own functions. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/param_spec.h"
#include "shoal/config.h"
#include "shoal/memory_plan.h"

namespace shoal {

inline constexpr int kStages = 4;

struct StagePlan {
  int stage = 0;
  MemoryPlan memory;
  size_t activations = 0;  // of one micro-step at its peak, estimated
  size_t host_activations = 0;
  // Of the weights that the rank keeps, on whatever tier.
  size_t frozen_weights = 0, trained_weights = 0;

  size_t total() const { return memory.total() + activations; }
  // Off the device.
  size_t host_total() const { return memory.host_total() + host_activations; }
  // Where the host computes: with what is off the device in the same memory.
  size_t total_on_host() const { return total() + host_total(); }
};

// The same training with fewer activations at a time.
struct LighterWork {
  std::string flags;  // that ask for it: "--recompute full"
  size_t activations = 0;
  size_t host_activations = 0;
  bool smaller_batch = false;  // it is less work a step, and not the same done otherwise
};

// What is planned: a model, or only a number of parameters.
struct PlanSubject {
  std::string name;             // "llama-7b", "7e9 parameters"
  std::vector<UnitSpec> units;  // in the dtypes that the config asks for
  bool count_only = false;      // one unit stands for a model that is not known: only model states mean something
  size_t activations = 0;
  size_t host_activations = 0;
  std::vector<LighterWork> lighter;  // what advice may fall back on, the heaviest first

  int64_t numel() const;  // parameters, tied ones once
  int64_t trained_numel() const;
};

// A model of which only the number of parameters is known, all in the config's precision.
PlanSubject subject_of_count(int64_t numel, Precision precision);

// Of a rank that computes on a GPU, or in host memory.
StagePlan plan_stage(const PlanSubject& subject, const Config& config, int world, bool on_gpu);
// The config with another stage in it, for each.
std::array<StagePlan, kStages> plan_stages(const PlanSubject& subject, const Config& config, int world,
                                           bool on_gpu = false);

// Mixed precision Adam as the ZeRO paper counts it: 2 bytes of weight, 2 of gradient, 12 of optimizer states (fp32
// master and two moments) a trained parameter, and the weight alone of a frozen one; without padding.
double classic_nbytes(int64_t trained, int stage, int world, int64_t frozen = 0);

}  // namespace shoal
