// Everything of a run that needs no other rank: model, config, data. What is wrong with it comes out here, before ranks
// meet and memory is taken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "shoal/config.h"
#include "train/batches.h"
#include "train/open_data.h"
#include "train/options.h"
#include "train/position.h"
#include "train/run_data.h"

namespace shoal::train {

// Made once, and read from then on; the model alone is told what a FittedRun recomputes. What the memory of the ranks
// has to say about it is a FittedRun.
struct PreparedRun {
  int world = 1;
  std::unique_ptr<models::LanguageModel> model;
  models::Recompute recompute = models::Recompute::none;  // as asked for
  Config config;                                          // as asked for, with the defaults of a run
  std::vector<std::string> choices;                       // decided here and not by the user; to be printed
  std::vector<int> same_leaves = {};                      // see RunConfig
  Vocabulary vocabulary;
  RunData data;
  CutOptions cut;
  Position start;               // of a run that begins
  std::string checkpoint = {};  // to go on from; "": begin
};

// Throws shoal::Error that says what to change. Looks at the run's folder, so every rank calls it before any of them
// writes there: before they meet. Tokens are not looked at yet: see check_tokens.
PreparedRun prepare_run(const TrainOptions& options, int world);

// The checkpoint to go on from, or "" for a run that begins. Throws shoal::Error when the user named one that is not
// there, or `out` holds a run already and nothing was said about going on.
std::string find_start(const TrainOptions& options);

// Tokens of a sample: what was asked for, or with 0 what the model can take, up to a limit. Throws shoal::Error when
// the model cannot take as many.
inline constexpr int64_t kLongestDefaultSequence = 1024;
int64_t sequence_for(int64_t asked, const models::ModelInfo& info);

// How many threads a rank of `local_ranks` on this host computes with.
int threads_for(const TrainOptions& options, int local_ranks);

models::MicroStep micro_step_of(const PreparedRun& run, at::Device device);
// What it keeps for backward on this device, by the plan.
models::ActivationNbytes activations_of(const PreparedRun& run, const models::RecomputedBlocks& blocks,
                                        at::Device device);

std::string checkpoints_of(const std::string& run_folder);

}  // namespace shoal::train
