// See agreement.h.
#include "train/agreement.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "checkpoint/exchange.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

std::string yes_or_no(bool given) { return given ? "yes" : "no"; }

}  // namespace

std::vector<Fact> facts_of(const TrainOptions& options, const PreparedRun& run) {
  // A checkpoint's path may differ from host to host; its step may not.
  const std::string start = std::filesystem::path(run.checkpoint).filename().string();
  return {
      {"--steps", std::to_string(options.steps)},
      {"--stop-at", std::to_string(options.stop_at)},
      {"--seed", std::to_string(options.seed)},
      {"--sequence", std::to_string(run.cut.sequence)},
      {"--validation", fmt::format("{}", options.validation)},
      {"--data", fmt::format("{} ({} samples)", run.start.data, run.start.train_samples)},
      {"--model", run.model->config_json()},
      {"--lora", run.model->info().lora ? models::to_text(run.model->info().lora->spec) : "none"},
      {"--recompute", models::name_of(options.recompute)},
      {"--eval-every", fmt::format("{} ({} batches)", options.eval_every, options.eval_batches)},
      {"--audit-every", std::to_string(options.audit_every)},
      {"--digest-every", std::to_string(options.digest_every)},
      {"--out", yes_or_no(!options.out.empty())},
      {"--save-every", std::to_string(options.save_every)},
      {"--save-and-wait", yes_or_no(options.save_and_wait)},
      {"--no-final-save", yes_or_no(!options.save_at_end)},
      {"--save-on-exit", yes_or_no(options.save_on_exit)},
      {"--on-save-error", yes_or_no(options.on_save_error == OnSaveError::stop)},
      {"the checkpoint to go on from", start.empty() ? "none" : start},
  };
}

void check_tokens_together(const PreparedRun& run, Group& world) {
  checkpoint::act_together(world, {"check", "tokens"}, "--data " + run.data.describe(), [&] {
    check_tokens(run.data, run.vocabulary, {world.rank(), world.size()});
  });
}

void check_agreement(const std::vector<Fact>& facts, Group& world) {
  std::vector<uint64_t> mine;
  for (const Fact& fact : facts) mine.push_back(hash_text(fact.value));
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(world.size()));
  world
      .all_gather({.subject = {"compare", "runs"},
                   .shard = mine.data(),
                   .whole = all.data(),
                   .shard_nbytes = mine.size() * sizeof(uint64_t),
                   .keep = nullptr})
      .wait();
  std::vector<std::string> differences;
  for (int rank = 1; rank < world.size(); ++rank) {
    for (size_t i = 0; i < facts.size(); ++i) {
      if (all[static_cast<size_t>(rank) * facts.size() + i] == all[i]) continue;
      differences.push_back(fmt::format("rank {} in {}", rank, facts[i].name));
    }
  }
  if (differences.empty()) return;
  throw Error("train", fmt::format("ranks differ from rank 0: {}. Start every rank with the same flags, the same data "
                                   "and a run folder that all hosts share.",
                                   join(differences, ", ")));
}

}  // namespace shoal::train
