// See saved_model.h.
#include "train/saved_model.h"

#include <fmt/format.h>

#include "checkpoint/run_folder.h"
#include "models/base_digest.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

std::optional<models::LoraBase> lora_of(const std::string& checkpoint) {
  return models::find_lora(checkpoint::read_manifest(checkpoint).extra, checkpoint);
}

}  // namespace

void check_lora_of(const std::string& checkpoint, const models::ModelInfo& model) {
  if (!checkpoint::incompleteness_of(checkpoint).empty()) return;  // the load says it
  const std::optional<models::LoraBase> saved = lora_of(checkpoint);
  const std::string own = model.lora ? models::to_text(model.lora->spec) : "";
  const std::string there = saved ? models::to_text(saved->spec) : "";
  if (own == there) return;
  if (own.empty()) {
    throw Error("--lora", fmt::format("{} was trained with --lora {}. Give it again.", checkpoint, there));
  }
  if (there.empty()) {
    throw Error("--lora",
                fmt::format("{} was trained without it, as a whole model. Export it (shoal checkpoint export), and "
                            "begin a new run with --model of that.",
                            checkpoint));
  }
  throw Error("--lora", fmt::format("{} was trained with {}, and this run asks for {}. Give the same, or begin a new "
                                    "run with another --out.",
                                    checkpoint, there, own));
}

std::optional<models::LoraBase> find_base(const TrainOptions& options, const PreparedRun& run, Group& world) {
  const models::ModelInfo& info = run.model->info();
  if (!info.lora || (options.out.empty() && run.checkpoint.empty())) return std::nullopt;
  models::LoraBase base = {.spec = info.lora->spec,
                           .model = models::lasting_name(options.model),
                           .seed = options.seed,
                           .digest = models::digest_frozen(run.model->units(), world)};
  if (run.checkpoint.empty()) return base;
  const std::optional<models::LoraBase> saved = lora_of(run.checkpoint);
  if (saved && saved->digest != base.digest) {
    throw Error("--model", models::other_base(*saved, info.name, base.digest));
  }
  return base;
}

SaveOptions saving_of(const TrainOptions& options, const models::LanguageModel& model,
                      const std::optional<models::LoraBase>& base) {
  SaveOptions saving;
  saving.folder = checkpoints_of(options.out);
  saving.keep_last = options.keep_last;
  saving.extra["model"] = options.model;
  saving.extra["model_config"] = model.config_json();
  saving.trained_only = base.has_value();
  if (base) models::put_lora(*base, saving.extra);
  return saving;
}

}  // namespace shoal::train
