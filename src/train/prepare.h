// Everything of a run that needs no other rank: model, config, data. What is wrong with it comes out here, before ranks
// meet and memory is taken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "shoal/config.h"
#include "train/batches.h"
#include "train/options.h"
#include "train/position.h"
#include "train/token_source.h"

namespace shoal::train {

struct PreparedRun {
  int world = 1;
  std::unique_ptr<models::LanguageModel> model;
  Config config;
  std::vector<std::string> choices;  // decided here and not by the user; to be printed
  std::unique_ptr<TokenSource> source;
  CutOptions cut;
  Position start;               // of a run that begins
  std::string checkpoint = {};  // to go on from; "": begin
};

// Throws shoal::Error that says what to change. Looks at the run's folder, so every rank calls it before any of them
// writes there: before they meet.
PreparedRun prepare_run(const TrainOptions& options, int world);

// The checkpoint to go on from, or "" for a run that begins. Throws shoal::Error when the user named one that is not
// there, or `out` holds a run already and nothing was said about going on.
std::string find_start(const TrainOptions& options);

std::string checkpoints_of(const std::string& run_folder);

}  // namespace shoal::train
