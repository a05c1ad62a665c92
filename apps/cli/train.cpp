// `shoal train`: flags into train::TrainOptions. Without a launcher, --ranks starts the ranks by running this command
// again; under torchrun, mpirun or srun each process is a rank.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/recompute_flag.h"
#include "cli/verbs.h"
#include "launch/launch_ranks.h"
#include "shoal/group.h"
#include "shoal/heap.h"
#include "train/prepare.h"
#include "train/trainer.h"

namespace shoal::cli {
namespace {

constexpr int64_t kMost = 1'000'000'000'000;  // steps

// Said to the ranks that we start, so that tokens are looked at once.
constexpr const char* kDataChecked = "--data-checked";

struct TrainFlags {
  train::TrainOptions options;
  int ranks = 0;
  std::string recompute = "none";
  std::string on_save_error = "stop";
  bool no_final_save = false;
};

// An sbatch script has SLURM's variables too, for the one task that it is: asked for more ranks there, we start them.
bool under_launcher(int ranks) {
  if (std::getenv("RANK") != nullptr || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return true;
  if (std::getenv("SLURM_PROCID") == nullptr) return false;
  return ranks <= 1 || world_size_of_environment() > 1;
}

// This command again, word for word.
std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

int start_ranks(const TrainFlags& flags) {
  launch::LaunchOptions launching;
  launching.command = own_command();
  launching.command.emplace_back(kDataChecked);
  launching.ranks = flags.ranks;
  launching.threads = train::threads_for(flags.options, flags.ranks);
  launching.rank0_keeps_stdout = ::isatty(STDOUT_FILENO) == 1;  // for its progress bar
  return launch::launch_ranks(launching).exit_code();
}

// As torch spells it; people say gpu too.
std::string device_named(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "gpu" || name.starts_with("gpu:")) name.replace(0, 3, "cuda");
  const bool numbered =
      name.starts_with("cuda:") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (name == "auto" || name == "cpu" || name == "cuda" || numbered) return name;
  const std::string nearest = nearest_word(name, {"auto", "cpu", "cuda"});
  throw UsageError("--device", fmt::format("{} is not a device.{} Use auto, cpu, cuda or cuda:<number>.", name,
                                           nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

int run_train(TrainFlags flags) {
  flags.options.device = device_named(flags.options.device);
  flags.options.recompute = recompute_named(flags.recompute);
  flags.options.on_save_error = flags.on_save_error == "stop" ? train::OnSaveError::stop : train::OnSaveError::go_on;
  flags.options.save_at_end = !flags.no_final_save;
  const bool launched = under_launcher(flags.ranks);
  const int world = launched ? world_size_of_environment() : std::max(flags.ranks, 1);
  if (launched && flags.ranks != 0 && flags.ranks != world) {
    throw UsageError("--ranks",
                     fmt::format("{} contradicts the launcher, which started {}. Leave it out.", flags.ranks, world));
  }
  // What every rank would complain about is said once, before ranks are started.
  const train::PreparedRun run = as_usage([&] { return train::prepare_run(flags.options, world); });
  if (!launched) {
    as_usage([&] { train::check_tokens(*run.source, run.vocabulary); });
    flags.options.data_checked = true;
  }
  if (world > 1 && !launched) return start_ranks(flags);
  keep_freed_memory();
  return train::train(flags.options, run);
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("train", "Train a language model, sharded over ranks");
  const auto flags = std::make_shared<TrainFlags>();
  train::TrainOptions& options = flags->options;
  verb->add_option("--model", options.model,
                   "a folder with a Hugging Face config.json, or a built-in name (builtin:NAME where both are there)")
      ->required();
  verb->add_option("--data", options.data, "text:PATH, tokens:FILE or synthetic[:tokens=N,surprise=P,seed=S]")
      ->required();
  verb->add_flag(kDataChecked, options.data_checked)->group("");  // not for users, and not in --help
  verb->add_option("--steps", options.steps, "optimizer steps of the whole run")
      ->required()
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--config", options.config_path, "DeepSpeed's JSON; left out: stage 3, fp32");
  verb->add_option("--set", options.overrides, "a key of the config: zero_optimization.stage=2; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--ranks", flags->ranks, "ranks to start on this host")->check(CLI::Range(1, launch::kMostRanks));
  verb->add_option("--lr", options.lr, "learning rate");
  verb->add_option("--sequence", options.sequence,
                   fmt::format("tokens of a sample; left out: the model's, at most {}", train::kLongestDefaultSequence))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--seed", options.seed, "of weights, order of samples and dropout")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  verb->add_option("--threads", options.threads, "of each rank; left out: an equal part of the cores")
      ->check(CLI::Range(1, 1 << 12));
  add_recompute(*verb, flags->recompute);
  verb->add_option("--device", options.device,
                   "auto (a GPU where there is one), cpu, cuda (gpu is the same) or cuda:<number>")
      ->capture_default_str();
  verb->add_option("--max-nonfinite", options.nonfinite_steps,
                   "end the run after so many steps in a row whose loss or gradients are not finite; 0: never")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  verb->add_flag("--deterministic", options.deterministic, "the same bits in every run on a GPU; costs some speed");
  CLI::Option* out = verb->add_option("--out", options.out, "the run's folder: config, metrics, checkpoints");
  verb->add_option("--resume", options.resume, "auto: the latest in --out, if any; or a checkpoint's folder");
  verb->add_option("--stop-at", options.stop_at, "end after this step, with a checkpoint; schedules still see --steps")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--save-every", options.save_every, "steps between checkpoints")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--keep-last", options.keep_last, "checkpoints to keep; left out: all")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_flag("--no-final-save", flags->no_final_save, "no checkpoint at the end");
  verb->add_flag("--save-on-exit", options.save_on_exit, "also save when Ctrl-C or SIGTERM ends the run");
  verb->add_option("--on-save-error", flags->on_save_error, "when a checkpoint cannot be written")
      ->check(CLI::IsMember({"stop", "continue"}))
      ->capture_default_str();
  verb->add_option("--validation", options.validation, "share of the samples kept for validation")
      ->capture_default_str();
  verb->add_option("--eval-every", options.eval_every, "steps between evaluations")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--eval-batches", options.eval_batches, "micro-batches a rank evaluates on, at most")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->capture_default_str();
  verb->add_option(
          "--trace-steps", options.trace_steps,
          "3, or 3-5: a trace of these steps on rank 0, as trace.json in --out, for chrome://tracing or Perfetto")
      ->needs(out);
  verb->add_option("--log-every", options.log_every, "steps between lines, where there is no terminal")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  verb->footer(
      "Example:\n  shoal train --model llama-tiny --data text:docs --sequence 64 --steps 200 --ranks 2 --out run");
  verb->callback([flags, &exit_code] { exit_code = run_train(*flags); });
}

}  // namespace shoal::cli
