// The rotary keys of config.json, as transformers 5 writes them ("rope_parameters") and as it did before ("rope_theta"
// and "rope_scaling"), in and out.
#pragma once

#include "models/dense/config.h"
#include "models/dense/families.h"

namespace shoal::models {

// Fills in rope, and local_rope of a family with two. head_dim, max_positions and the layers have been read.
void read_ropes(const HfConfig& config, const DenseFamily& family, DenseConfig& read);

// Writes rope in both forms into a config.json.
void export_rope(const HfConfig& config, const DenseConfig& read, json::Value& exported);

}  // namespace shoal::models
