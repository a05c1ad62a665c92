// From a model's first values to a checkpoint from which training starts: weights, no moments, no progress.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/unit.h"

namespace shoal::checkpoint {

struct ImportOptions {
  std::string folder;        // of checkpoints, without any; the new one is <folder>/step-00000000
  std::string model_config;  // the model's config.json; "": none
};

// Every parameter must have a source. Reads in a stream. Returns the checkpoint's path.
std::string import_weights(const std::vector<Unit>& units, const ImportOptions& options);

}  // namespace shoal::checkpoint
