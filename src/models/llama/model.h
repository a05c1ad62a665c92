// The Llama family's model: RMS norms, rotary positions, grouped queries, SwiGLU. Parameters have the names, and the
// shapes, that they have in Hugging Face checkpoints.
#pragma once

#include "models/family.h"

namespace shoal::models {

Family llama_family();

}  // namespace shoal::models
