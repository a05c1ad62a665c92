// What a block of a dense decoder keeps for backward, counted from its switches.
#pragma once

#include "models/decoder.h"
#include "models/dense/config.h"
#include "models/dense/weights.h"

namespace shoal::models {

struct DenseBlockKind {
  bool experts = false;  // in place of the dense feed-forward part
  DenseAdapters adapters = {};
};

// What a frozen base would need only for its gradients is not kept.
BlockNbytes dense_block_nbytes(const DenseConfig& config, const MicroStep& of, const DenseBlockKind& block = {});

}  // namespace shoal::models
