// The keys of config.json about experts.
#pragma once

#include "models/dense/config.h"
#include "models/dense/families.h"

namespace shoal::models {

// Fills in experts and which layers have them, of a family that has any. Everything else has been read.
void read_experts(const HfConfig& config, const DenseFamily& family, DenseConfig& read);

}  // namespace shoal::models
