// See prepare.h.
#include "train/prepare.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "launch/rank_environment.h"
#include "models/open_model.h"
#include "plan/from_config.h"
#include "shoal/checkpoint.h"
#include "shoal/error.h"
#include "train/expert_load.h"
#include "train/monitor_logs.h"
#include "train/param_groups.h"
#include "train/run_config.h"
#include "train/run_lock.h"
#include "train/saved_model.h"
#include "train/text_source.h"
#include "train/trace.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

void check_flags(const TrainOptions& options, int world) {
  if (options.steps < 1) throw Error("--steps", fmt::format("{} steps are no run. Give 1 or more.", options.steps));
  if (!(options.validation >= 0 && options.validation < 1)) {
    throw Error("--validation", fmt::format("{} is not a share. Give a number from 0 to below 1.", options.validation));
  }
  if (options.stop_at > options.steps) {
    throw Error("--stop-at",
                fmt::format("{} is beyond the run's {} steps. Give --steps of the whole run, or leave it out.",
                            options.stop_at, options.steps));
  }
  if (!options.trace_steps.empty()) read_step_span(options.trace_steps);
  read_rank_list(options.trace_ranks, world);
  if (options.out.empty() && options.digest_every > 0) {
    throw Error("--digest-every", "digests are written into the run's folder. Give --out DIR.");
  }
  if (options.out.empty() && (options.save_every > 0 || options.resume == "auto" || options.save_on_exit)) {
    throw Error("--out", "saving and --resume auto need a folder for the run. Give --out DIR.");
  }
}

// What a run knows better than a config by default: everything in it reads weights through the engine, and its dropout
// is drawn by --seed, whatever the number of ranks. Memory for saves is planned where they take any.
Config with_defaults_of_runs(Config config, const TrainOptions& options) {
  DeferUpdate& defer = config.shoal.defer_update;
  if (defer == DeferUpdate::automatic) defer = DeferUpdate::on;
  if (config.shoal.leaf_seed < 0) config.shoal.leaf_seed = static_cast<int64_t>(options.seed);
  if (!saves_behind(options)) config.shoal.save_memory = 0;
  return config;
}

void check_recompute(const TrainOptions& options, const Config& config) {
  if (!config.inputs_on_host || options.recompute == models::Recompute::full) return;
  throw Error("config activation_checkpointing.cpu_checkpointing",
              fmt::format("true, and --recompute is {}: only the inputs of recomputed blocks go to the host. Give "
                          "--recompute full, or set it to false.",
                          models::name_of(options.recompute)));
}

// Found out before ranks start and memory is taken.
void make_run_folder(const std::string& out) {
  if (out.empty()) return;
  std::error_code error;
  for (const std::string& folder : {out, checkpoints_of(out)}) {
    fs::create_directories(folder, error);
    if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
    if (error) {
      throw Error("--out", fmt::format("{} cannot be written: {}. Give another folder.", folder, error.message()));
    }
  }
}

// Where a run begins that goes on from nothing. The data must be enough for what the flags ask for.
Position start_of(const TrainOptions& options, const Config& config, const CutOptions& cut, const RunData& data,
                  int world) {
  const int data_ranks = mesh_of(config, world).data_ranks();
  const Batches batches(*data.samples, data.describe(), cut.sequence,
                        {.batch = config.batch, .data_ranks = data_ranks});
  if (options.eval_every > 0 && batches.validation_leaves() == 0) {
    throw Error(
        "--eval-every",
        fmt::format("the {} validation samples are fewer than one micro-batch, {}. Give a larger --validation or "
                    "more data.",
                    batches.validation_samples(), config.batch.micro_batch_size));
  }
  return {.samples = 0,
          .seed = options.seed,
          .sequence = cut.sequence,
          .train_samples = batches.train_samples(),
          .data = data.fingerprint};
}

}  // namespace

int threads_for(const TrainOptions& options, int local_ranks) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return launch::threads_of_rank(options.threads, std::getenv("OMP_NUM_THREADS"), cores, local_ranks);
}

int64_t sequence_for(int64_t asked, const models::ModelInfo& info) {
  if (asked == 0) return std::min(kLongestDefaultSequence, info.max_positions);
  if (asked > info.max_positions) {
    throw Error("--sequence", fmt::format("{} tokens are more than {} can take, {}: that is its {}. Give {} or fewer.",
                                          asked, info.name, info.max_positions, info.positions_by, info.max_positions));
  }
  return asked;
}

std::string checkpoints_of(const std::string& run_folder) { return (fs::path(run_folder) / "checkpoints").string(); }

PreparedRun prepare_run(const TrainOptions& options, int world) {
  check_flags(options, world);
  std::optional<models::LoraSpec> lora;
  if (!options.lora.empty()) lora = models::parse_lora(options.lora);
  std::unique_ptr<models::LanguageModel> model = models::open_model(
      options.model,
      {.seed = options.seed, .recompute = options.recompute, .lora = lora, .router_aux_loss = options.router_aux_loss});
  const models::ModelInfo& info = model->info();
  RunConfig made = make_run_config(options, world, info.hidden);
  Config config = with_defaults_of_runs(std::move(made.config), options);
  check_recompute(options, config);
  check_param_groups(options, config);
  log_folders(options, config);  // throws what is wrong with them
  const CutOptions cut = {.sequence = sequence_for(options.sequence, info),
                          .validation = options.validation,
                          .seed = options.seed,
                          .packing = options.packing};
  const Vocabulary vocabulary = {info.name, info.vocab, info.byte_tokens || info.vocab == kByteVocab};
  RunData data = open_run_data(
      options.data, vocabulary, cut,
      {.program = options.tokenizer, .model_folder = models::model_folder(options.model), .run_folder = options.out});
  const Position start = start_of(options, config, cut, data, world);

  std::vector<std::string> choices = std::move(made.choices);
  if (std::string doubt = models::name_clash(options.model); !doubt.empty()) choices.push_back(std::move(doubt));
  for (std::string& line : param_group_lines(model->units(), options, config)) choices.push_back(std::move(line));
  if (std::string line = experts_line(info.experts); !line.empty()) choices.push_back(std::move(line));
  choices.insert(choices.end(), data.said.begin(), data.said.end());
  if (!options.out.empty()) check_unlocked(options.out);
  std::string checkpoint = find_start(options);
  if (!checkpoint.empty()) {
    check_lora_of(checkpoint, info);
    const fs::path run = fs::path(checkpoint).parent_path().parent_path();
    std::string change = param_group_change(options, (run / "run.json").string());
    if (!change.empty()) choices.push_back(std::move(change));
  }
  make_run_folder(options.out);
  return {.world = world,
          .model = std::move(model),
          .recompute = options.recompute,
          .config = std::move(config),
          .choices = std::move(choices),
          .same_leaves = std::move(made.same_leaves),
          .vocabulary = vocabulary,
          .data = std::move(data),
          .cut = cut,
          .start = start,
          .checkpoint = std::move(checkpoint)};
}

models::MicroStep micro_step_of(const PreparedRun& run, at::Device device) {
  models::MicroStep step;
  step.batch = run.config.batch.micro_batch_size;
  step.time = run.cut.sequence;
  step.dtype = dtype_of(run.config.precision);
  step.device = device.type();
  step.inputs_on_host = run.config.inputs_on_host;
  step.fp8 = run.config.fp8.enabled;
  step.deterministic =
      at::globalContext().deterministicAlgorithms() && !at::globalContext().deterministicAlgorithmsWarnOnly();
  return step;
}

models::ActivationNbytes activations_of(const PreparedRun& run, const models::RecomputedBlocks& blocks,
                                        at::Device device) {
  return run.model->activation_nbytes(micro_step_of(run, device), blocks);
}

std::string find_start(const TrainOptions& options) {
  if (options.restarted_from) return *options.restarted_from;
  const std::string own = checkpoints_of(options.out);
  if (options.resume.empty()) {
    if (!options.out.empty() && fs::exists(fs::path(options.out) / "metrics.jsonl")) {
      throw Error("--out", fmt::format("{} holds a run already. Add --resume auto to go on with it, or give another "
                                       "folder.",
                                       options.out));
    }
    return "";
  }
  if (options.resume == "auto") {
    const std::string latest = find_latest_checkpoint(own);
    if (latest.empty() && !checkpoint::steps_in(own).empty()) {
      throw Error("--resume", fmt::format("{} holds checkpoints, and none of them is complete. Look at them with shoal "
                                          "checkpoint verify, or give another --out to begin again.",
                                          own));
    }
    return latest;
  }
  const std::string start = checkpoint::resolve_checkpoint(options.resume, "--resume");
  std::error_code ignored;
  if (!options.out.empty() && fs::exists(fs::path(options.out) / "metrics.jsonl") &&
      !fs::equivalent(fs::path(start).parent_path(), own, ignored)) {
    throw Error("--out", fmt::format("{} holds another run than {}. Give another folder.", options.out, start));
  }
  return start;
}

}  // namespace shoal::train
