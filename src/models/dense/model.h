// The dense decoder: one block, whose switches families set. Parameters have the names, and the shapes, that they have
// in Hugging Face checkpoints.
#pragma once

#include "models/family.h"

namespace shoal::models {

Family dense_family();

}  // namespace shoal::models
