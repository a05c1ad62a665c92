// The config of a training run: the user's file with the command's flags laid over it, and the defaults that a run
// needs and DeepSpeed's JSON may leave out.
#pragma once

#include <string>
#include <vector>

#include "shoal/config.h"
#include "train/options.h"

namespace shoal::train {

inline constexpr double kDefaultLr = 3e-4;
inline constexpr int64_t kDefaultMicroBatch = 8;

struct RunConfig {
  Config config;
  std::vector<std::string> choices;  // one line for each thing that was decided here, to be printed
};

// Throws shoal::Error with every mistake of the config.
RunConfig make_run_config(const TrainOptions& options, int world, int64_t hidden_size);

}  // namespace shoal::train
