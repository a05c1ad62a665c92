// What a run's checkpoints say of its model, and what a run that goes on from one must have in common with it.
#pragma once

#include <optional>
#include <string>

#include "models/lora_base.h"
#include "shoal/checkpoint.h"
#include "shoal/group.h"
#include "train/options.h"
#include "train/prepare.h"

namespace shoal::train {

// Throws shoal::Error where the checkpoint was made with another --lora than the model, or one of them without it.
void check_lora_of(const std::string& checkpoint, const models::ModelInfo& model);

// What the adapters of a run with --lora are trained on, where a checkpoint is to know it, or one is to go on from:
// reads the whole base once. Throws shoal::Error where that one was made on another base. Every rank calls it.
std::optional<models::LoraBase> find_base(const TrainOptions& options, const PreparedRun& run, Group& world);

// Where a run's checkpoints go, and what they say of its model. A base stays where it is: with one they have the
// adapters alone.
SaveOptions saving_of(const TrainOptions& options, const models::LanguageModel& model,
                      const std::optional<models::LoraBase>& base);

}  // namespace shoal::train
