// The config of a training run: the user's file with the command's flags laid over it, and the defaults that a run
// needs and DeepSpeed's JSON may leave out.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "shoal/config.h"
#include "train/options.h"

namespace shoal::train {

inline constexpr double kDefaultLr = 3e-4;
inline constexpr int64_t kDefaultMicroBatch = 8;

struct RunConfig {
  Config config;
  std::vector<std::string> choices;  // one line for each thing that was decided here, to be printed
  std::vector<int> same_leaves;      // numbers of ranks that would have the same leaves: see SameBitsFacts::worlds
};

// What is written in the file, or where there is none what stands for it; without what flags lay over it.
json::Value read_run_config(const TrainOptions& options);

// Throws shoal::Error with every mistake of the config.
RunConfig make_run_config(const TrainOptions& options, int world, int64_t hidden_size);

}  // namespace shoal::train
