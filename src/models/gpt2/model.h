// GPT-2: layer norms, learned positions, GELU, the embedding as head. Parameters have the names, and the shapes, that
// they have in Hugging Face checkpoints, where matrices are [in, out].
#pragma once

#include "models/family.h"

namespace shoal::models {

Family gpt2_family();

}  // namespace shoal::models
