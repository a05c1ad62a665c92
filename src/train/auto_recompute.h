// `--recompute auto`: keeps of activations what fits beside the model's states.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

struct RecomputeQuestion {
  const models::LanguageModel& model;
  models::MicroStep step;
  const Config& config;
  int world = 1;
  size_t room = 0;  // bytes that a rank may take, on the device that the step says
};
struct RecomputeAnswer {
  models::RecomputedBlocks blocks;
  size_t activations = 0, states = 0;  // bytes on that device
  bool fits = true;                    // false: full in all blocks is still too much
};
// The same for a plan and for a run. Where placement is automatic on a GPU, states count as on the device:
// they leave it for activations that recompute cannot spare.
RecomputeAnswer choose_recompute(const RecomputeQuestion& question);

struct RecomputeChoice {
  models::RecomputedBlocks blocks;
  std::string words;  // what was decided and why; "" where the user did
};
// What the run's model computes again, the same on every rank. Every rank calls it.
RecomputeChoice settle_recompute(const PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
