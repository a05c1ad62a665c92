// The feed-forward part of a layer with experts: its router, its experts, and the shared one where there is one.
#pragma once

#include "models/decoder.h"
#include "models/dense/config.h"
#include "models/dense/weights.h"

namespace shoal::models {

// Adds to what the pass counts.
at::Tensor dense_mixture(const Pass& pass, const DenseConfig& config, const DenseBlock& block,
                         const ops::Operand& read);

}  // namespace shoal::models
