// What a run leaves in its folder before the first step: config.json, the effective config, and run.json, what it was
// started with.
#pragma once

#include <filesystem>
#include <string>

#include "shoal/config.h"
#include "train/batches.h"
#include "train/model_flops.h"
#include "train/options.h"

namespace shoal::train {

struct RunRanks {
  int threads = 1;  // of each
  int count = 1;
  std::string transport;
};

// Throws shoal::Error when the folder cannot be written.
void write_run_facts(const std::filesystem::path& folder, const TrainOptions& options, const CutOptions& cut,
                     const Config& config, const RunRanks& ranks, const ModelFlops& flops, int64_t train_samples);

}  // namespace shoal::train
