// What a block of a dense decoder keeps for backward, counted from its switches.
#pragma once

#include "models/decoder.h"
#include "models/dense/config.h"

namespace shoal::models {

// `experts`: the block has experts in place of the dense feed-forward part.
BlockNbytes dense_block_nbytes(const DenseConfig& config, const MicroStep& of, bool experts = false);

}  // namespace shoal::models
