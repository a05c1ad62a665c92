// `shoal train`: flags into train::TrainOptions. Without a launcher, --ranks starts the ranks by running this command
// again; under torchrun, mpirun or srun each process is a rank.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/unix_time.h"
#include "cli/device_flag.h"
#include "cli/lora_flag.h"
#include "cli/own_ranks.h"
#include "cli/recompute_flag.h"
#include "cli/tokenizer_program.h"
#include "cli/verbs.h"
#include "launch/launch_ranks.h"
#include "report/page.h"
#include "shoal/group.h"
#include "shoal/heap.h"
#include "train/prepare.h"
#include "train/restarts.h"
#include "train/stop_wish.h"
#include "train/trainer.h"

namespace shoal::cli {
namespace {

constexpr int64_t kMost = 1'000'000'000'000;  // steps

// When the command began, for ranks that we start, once or again.
constexpr const char* kBegan = "SHOAL_TRAIN_BEGAN";
// Said to the ranks that we start, so that tokens are looked at once.
constexpr const char* kDataChecked = "--data-checked";

struct TrainFlags {
  train::TrainOptions options;
  int ranks = 0;
  int restarts = 0;
  double max_hours = 0;
  std::string restarted_from;  // said by us to the ranks that we start again
  bool share_gpu = false;
  std::string recompute = "none";
  std::string on_save_error = "stop";
  std::string grad_accum_dtype;
  bool no_final_save = false;
  bool no_report = false;
  bool pack = false, no_pack = false;
};

// A page of the run, at its end: also of one that failed. What cannot be shown fails nothing.
void leave_report(const TrainFlags& flags) {
  const std::string& folder = flags.options.out;
  if (flags.no_report || folder.empty() || !std::filesystem::exists(folder + "/metrics.jsonl")) return;
  try {
    report::write_page({folder}, folder + "/report.html");
    fmt::print("report     {}/report.html\n", folder);
  } catch (const std::exception& error) {
    fmt::print(stderr, "shoal: {} There is no report; the run is not changed by it.\n", error.what());
  }
}

// The exit code of what trains, with a page of it at the end, whatever that end is.
template <typename Train>
int with_report(const TrainFlags& flags, bool writes, const Train& train) {
  try {
    const int code = train();
    if (writes) leave_report(flags);
    return code;
  } catch (...) {
    if (writes) leave_report(flags);
    throw;
  }
}

bool is_first_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

double began() {
  const char* told = std::getenv(kBegan);
  return told != nullptr ? std::strtod(told, nullptr) : unix_seconds();
}

bool started_again_by_torchrun() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && std::string(count) != "0";
}

// torchrun would take a run that has stopped well for one that failed, and start it again.
int exit_code_here(int code) {
  const char* restarts = std::getenv("TORCHELASTIC_MAX_RESTARTS");
  const bool started_again = restarts != nullptr && std::string(restarts) != "0";
  return code == train::kUnfinishedExit && started_again ? 0 : code;
}

int start_ranks(const TrainFlags& flags, const train::PreparedRun& run) {
  launch::LaunchOptions launching;
  launching.command = own_command();
  launching.command.emplace_back(kDataChecked);
  launching.ranks = run.world;
  launching.share_gpu = flags.share_gpu;
  launching.env["SHOAL_TRAIN_STARTED_BY_SHOAL"] = "1";
  launching.env[kBegan] = fmt::format("{}", began());
  launching.usr1_stops = true;
  launching.unfinished_code = train::kUnfinishedExit;
  launching.threads = train::threads_for(flags.options, run.world);
  launching.rank0_keeps_stdout = ::isatty(STDOUT_FILENO) == 1;  // for its progress bar
  if (flags.restarts == 0) return launch::launch_ranks(launching).exit_code();
  // Time in which nobody trains, and what the others could still save is saved already.
  launching.patience = std::chrono::seconds(5);
  launching.terminate_grace = std::chrono::seconds(1);
  train::Restarts restarts({.out = flags.options.out,
                            .first_checkpoint = run.checkpoint,
                            .command = launching.command,
                            .restarts = flags.restarts});
  launching.again = [&](const launch::LaunchOutcome& outcome) { return restarts.after(outcome); };
  return launch::launch_ranks(launching).exit_code();
}

void check_restarts(const TrainFlags& flags, bool launched) {
  if (flags.restarts == 0) return;
  if (launched && std::getenv("SHOAL_TRAIN_STARTED_BY_SHOAL") == nullptr) {
    throw UsageError("--restarts",
                     "is for ranks that this command starts, and here another launcher did. Have it start them again "
                     "(torchrun: --max-restarts), with --resume auto.");
  }
  if (flags.options.out.empty()) {
    throw UsageError("--restarts", "needs the run's folder, whose checkpoints it goes on from. Give --out DIR.");
  }
}

int run_train(TrainFlags flags) {
  flags.options.device = device_named(flags.options.device);
  flags.options.recompute = recompute_named(flags.recompute);
  flags.options.on_save_error = flags.on_save_error == "stop" ? train::OnSaveError::stop : train::OnSaveError::go_on;
  flags.options.save_at_end = !flags.no_final_save;
  if (!flags.grad_accum_dtype.empty()) {
    flags.options.overrides.push_back("data_types.grad_accum_dtype=" + flags.grad_accum_dtype);
  }
  if (flags.pack) flags.options.packing = train::Packing::on;
  if (flags.no_pack) flags.options.packing = train::Packing::off;
  flags.options.tokenizer = tokenizer_program();
  const bool launched = under_launcher(flags.ranks);
  const int world = ranks_asked(flags.ranks);
  if (flags.share_gpu && flags.options.device == "cpu") {
    throw UsageError("--share-gpu", "is for ranks on a GPU, and --device is cpu. Leave one of them out.");
  }
  if (flags.share_gpu && launched && std::getenv("NCCL_HOSTID") == nullptr) {
    throw UsageError(
        "--share-gpu",
        "is for ranks that this command starts, and here another launcher did. Start them by `shoal launch "
        "--share-gpu`, or set NCCL_HOSTID to another text in each.");
  }
  check_restarts(flags, launched);
  if (!flags.restarted_from.empty()) {
    flags.options.restarted_from = flags.restarted_from == train::kBeginning ? "" : flags.restarted_from;
  }
  if (launched && started_again_by_torchrun() && !flags.options.out.empty()) {
    flags.options.restarted_from = as_usage([&] { return train::restart_point(flags.options); });
  }
  // What every rank would complain about is said once, before ranks are started.
  const train::PreparedRun run = as_usage([&] { return train::prepare_run(flags.options, world); });
  if (!launched) {
    as_usage([&] { train::check_tokens(run.data, run.vocabulary); });
    flags.options.data_checked = true;
  }
  if ((world > 1 || flags.restarts > 0) && !launched) {
    return with_report(flags, true, [&] { return start_ranks(flags, run); });
  }
  if (flags.max_hours > 0) flags.options.ends_at = began() + flags.max_hours * 3600;
  keep_freed_memory();
  // Ranks that we started leave it to us.
  const bool ours = std::getenv("SHOAL_TRAIN_STARTED_BY_SHOAL") != nullptr;
  return with_report(flags, !ours && is_first_rank(), [&] { return exit_code_here(train::train(flags.options, run)); });
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("train", "Train a language model, sharded over ranks");
  const auto flags = std::make_shared<TrainFlags>();
  train::TrainOptions& options = flags->options;
  verb->add_option("--model", options.model,
                   "a folder with a Hugging Face config.json, or a built-in name (builtin:NAME where both are there)")
      ->required();
  verb->add_option("--data", options.data,
                   "text:PATH, tokens:FILE, chat:FILE, prompts:FILE or synthetic[:tokens=N,surprise=P,seed=S]; several "
                   "as SOURCE:WEIGHT with commas")
      ->required();
  CLI::Option* pack = verb->add_flag(
      "--pack", flags->pack,
      "rows of whole documents, several in each, that do not see each other; conversations are packed without it");
  verb->add_flag("--no-pack", flags->no_pack, "of conversations one a row, the rest of it empty")->excludes(pack);
  verb->add_flag(kDataChecked, options.data_checked)->group("");  // not for users, and not in --help
  verb->add_option("--steps", options.steps, "optimizer steps of the whole run")
      ->required()
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--config", options.config_path, "DeepSpeed's JSON; left out: stage 3, fp32");
  verb->add_option("--set", options.overrides, "a key of the config: zero_optimization.stage=2; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--ranks", flags->ranks, "ranks to start on this host")->check(CLI::Range(1, launch::kMostRanks));
  verb->add_option(
          "--restarts", flags->restarts,
          "when a rank fails, end the others and start all again from the newest complete checkpoint, so often "
          "at most")
      ->check(CLI::Range(0, 1'000'000));
  verb->add_option(train::kRestartedFrom, flags->restarted_from)->group("");  // not for users
  verb->add_flag("--share-gpu", flags->share_gpu,
                 "the ranks of --ranks all on the first visible GPU, and NCCL between them");
  verb->add_option("--lr", options.lr, "learning rate");
  add_lora(*verb, options.lora);
  verb->add_flag("--no-decay", options.no_decay, "no weight decay for norms and biases");
  verb->add_option("--layer-decay", options.layer_decay,
                   "each layer learns at this share of the rate of the one above it: 0.9; the head at --lr")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--grad-accum-dtype", flags->grad_accum_dtype,
                   "what a step's mean gradient is rounded to; at stages 0 and 1 without shoal.reproducible its "
                   "micro-steps are added up in it too")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_option("--router-aux-loss", options.router_aux_loss,
                   "of mixtures of experts, what the loss that balances them counts: 0.001; 0: nothing; left out: "
                   "router_aux_loss_coef of config.json where its output_router_logits is true")
      ->check(CLI::Range(0.0, 1e6));
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
  verb->add_option(
          "--max-nonfinite", options.nonfinite_steps,
          "end the run after so many steps in a row whose loss or gradients are not finite; 0: never; left out: "
          "shoal.max_nonfinite of the config, 20")
      ->check(CLI::Range(int64_t{0}, kMost));
  verb->add_flag("--deterministic", options.deterministic, "the same bits in every run on a GPU; costs some speed");
  CLI::Option* out = verb->add_option("--out", options.out, "the run's folder: config, metrics, checkpoints");
  verb->add_option("--resume", options.resume, "auto: the latest in --out, if any; or a checkpoint's folder");
  verb->add_option("--stop-at", options.stop_at, "end after this step, with a checkpoint; schedules still see --steps")
      ->check(CLI::Range(int64_t{1}, kMost));
  CLI::Option* save_every =
      verb->add_option(
              "--save-every", options.save_every,
              "steps between checkpoints; they are written behind training, from a copy of the state in memory "
              "(shoal.save_memory of the config)")
          ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_flag("--save-and-wait", options.save_and_wait,
                 "training waits until a checkpoint of --save-every is complete, and no memory is taken for a copy")
      ->needs(save_every);
  verb->add_option("--keep-last", options.keep_last, "checkpoints to keep; left out: all")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_flag("--no-report", flags->no_report, "no report.html in --out at the end");
  verb->add_flag("--no-final-save", flags->no_final_save, "no checkpoint at the end");
  verb->add_flag("--save-on-exit", options.save_on_exit,
                 "also save when Ctrl-C ends the run, as SIGTERM and SIGUSR1 do with --out");
  verb->add_option("--max-hours", flags->max_hours,
                   "stop after the step in which so many hours are over, with a checkpoint and exit code 75; "
                   "--resume auto goes on")
      ->needs(out)
      ->check([](const std::string& text) {
        return std::strtod(text.c_str(), nullptr) > 0 ? "" : text + " is no number of hours. Give one above 0.";
      });
  verb->add_option("--on-save-error", flags->on_save_error, "when a checkpoint cannot be written")
      ->check(CLI::IsMember({"stop", "continue"}))
      ->capture_default_str();
  verb->add_option("--validation", options.validation, "share of the samples kept for validation")
      ->capture_default_str();
  verb->add_option("--eval-every", options.eval_every, "steps between evaluations")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--eval-batches", options.eval_batches,
                   "micro-batches of an evaluation, over all ranks together, at most")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->capture_default_str();
  verb->add_option("--digest-every", options.digest_every,
                   "steps between digests of weights and moments, into metrics.jsonl and, by parameter, digests.jsonl "
                   "of --out; for shoal compare. Each reads every state of a rank once, about 3 ns an element: for "
                   "1e9 parameters with two moments about 9 s divided by the ranks; states on disk are read from there")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option(
          "--audit-every", options.audit_every,
          "steps between searches for a rank that computes wrong: two ranks run the same micro-batch and compare "
          "gradients, and weights that all hold are compared; the run ends and names the rank. Takes two "
          "micro-steps each time. On GPUs it needs --deterministic")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--log", options.log,
                   "tensorboard, csv or both with a comma: numbers of each step for other programs, in --out or where "
                   "the config says");
  CLI::Option* traced =
      verb->add_option(
              "--trace-steps", options.trace_steps,
              "3, or 3-5: a trace of these steps on rank 0, as trace.json in --out, for chrome://tracing or Perfetto")
          ->needs(out);
  verb->add_option("--trace-ranks", options.trace_ranks,
                   "ranks that write a trace of --trace-steps: all, or 0,2-3; rank 1's is trace-rank-1.json")
      ->needs(traced)
      ->capture_default_str();
  verb->add_option("--peak-tflops", options.peak_tflops,
                   "of one rank's device, for MFU; left out: known for NVIDIA's A100, H100, H200, B200 and some more")
      ->check(CLI::PositiveNumber);
  verb->add_option("--log-every", options.log_every, "steps between lines, where there is no terminal")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  verb->footer(
      "Example:\n  shoal train --model llama-tiny --data text:docs --sequence 64 --steps 200 --ranks 2 --out run\n"
      "  shoal train --model qwen --data chat:talks.jsonl --steps 500 --ranks 2 --out tuned\n"
      "  shoal train --model qwen --data chat:talks.jsonl --steps 500 --lora r=16,alpha=32,targets=all-linear --out "
      "tuned\n"
      "  shoal train --model qwen --data tokens:web.bin:0.7,tokens:chat.bin:0.3 --pack --steps 500 --out mixed");
  verb->callback([flags, &exit_code] { exit_code = run_train(*flags); });
}

}  // namespace shoal::cli
