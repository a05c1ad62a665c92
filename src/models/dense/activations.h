// What a block of a dense decoder keeps for backward, counted from its switches.
#pragma once

#include "models/decoder.h"
#include "models/dense/config.h"
#include "models/dense/weights.h"

namespace shoal::models {

// With adapters the base is frozen, and what only its gradients would need is not kept.
BlockNbytes dense_block_nbytes(const DenseConfig& config, const MicroStep& of, const DenseAdapters& adapters = {});

}  // namespace shoal::models
