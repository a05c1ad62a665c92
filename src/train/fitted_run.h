// What a prepared run becomes when the memory of all ranks is known: the last word on its config and on what its model
// computes again. Made once, before anything is built.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/language_model.h"
#include "shoal/config.h"
#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

struct FittedRun {
  Config config;
  models::RecomputedBlocks recomputed;
  models::ActivationNbytes activations;  // that a micro-step keeps for backward on this device, by the plan
  std::vector<std::string> choices;      // the run's, and what was decided here; to be printed
};

// What the run left to the memory that there is. Every rank calls it.
FittedRun fit_to_memory(const PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
