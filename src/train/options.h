// What a user asks of `shoal train`, one field a flag. apps/cli/train.cpp fills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/open_model.h"
#include "train/samples.h"

namespace shoal::train {

enum class OnSaveError : uint8_t {
  stop,   // end the run with the error
  go_on,  // say so and train on; the run ends with an error if its last save failed
};

struct TrainOptions {
  std::string model;
  std::string data;
  Packing packing = Packing::automatic;
  std::vector<std::string> tokenizer;  // the program that makes tokens of chat:FILE: an interpreter and its script
  bool data_checked = false;           // who started this rank has looked at every token
  std::string config_path;             // "": stage 3 with every default
  std::vector<std::string> overrides;  // "path=value", over the config
  std::optional<double> lr;
  std::string lora;        // "r=16,alpha=32": freeze the model and train adapters (models/lora.h); "": train all of it
  bool no_decay = false;   // norms and biases do not decay (train/param_groups.h)
  double layer_decay = 1;  // each layer learns at this share of the rate of the one above it
  int64_t steps = 0;       // of the whole run, those before a resume counted
  int64_t stop_at = 0;   // end early after this step, with a checkpoint; 0: after the last. Schedules still see `steps`
  int64_t sequence = 0;  // tokens a sample trains on; 0: see sequence_for
  uint64_t seed = 1;
  double validation = 0.05;   // share of the samples kept for validation
  int64_t eval_every = 0;     // steps; 0: never
  int64_t eval_batches = 16;  // micro-batches an evaluation runs, over all ranks, at most
  int64_t digest_every = 0;   // steps between digests of weights and moments; 0: none
  int64_t audit_every = 0;    // steps between searches for ranks that compute wrong (train/audit.h); 0: none
  models::Recompute recompute = models::Recompute::none;
  std::optional<double> router_aux_loss;  // of mixtures of experts; left out: as config.json says
  std::string device = "auto";            // see open_device in shoal/device.h
  bool deterministic = false;             // the same bits in every run on a GPU, where it costs speed
  std::optional<int64_t>
      nonfinite_steps;  // so many in a row end the run (optim/nonfinite_steps.h); left out: the config says

  std::string out;     // the run's folder; "": write nothing
  std::string resume;  // "auto": the latest in `out`, if there is one; a checkpoint, a folder of them, or a run
  // What a start after a failure goes on from, as who starts the ranks has found it, in place of `resume`; "": the
  // beginning. Nothing: this is no such start.
  std::optional<std::string> restarted_from;
  int64_t save_every = 0;      // steps; 0: only at the end
  bool save_and_wait = false;  // checkpoints of save_every are written before training goes on, not behind it
  bool save_at_end = true;     // needs `out`, as all saving does
  int keep_last = 0;           // checkpoints to keep; 0: all
  bool save_on_exit = false;   // also when Ctrl-C ends the run, and with save_at_end off
  double ends_at = 0;          // Unix time after which the run stops at the end of its step and saves; 0: never
  OnSaveError on_save_error = OnSaveError::stop;

  std::string log;  // "tensorboard,csv": what else numbers are written to (train/monitor_logs.h); "": the config says
  std::string trace_steps;         // "3-5": rank 0 writes a trace of them into `out`; "": none
  std::string trace_ranks = "0";   // "0", "0,2-3", "all": ranks that write one
  double peak_tflops = 0;          // of one rank's device, for MFU; 0: what is known of it (train/model_flops.h)
  int threads = 0;                 // of each rank; 0: OMP_NUM_THREADS, else an equal part of the cores
  int64_t log_every = 10;          // steps between lines, where there is no terminal
  std::optional<int> read_behind;  // steps that are begun before the first is read; nothing: one on a GPU, none else
};

// Checkpoints of the run are written behind training, from a picture in host memory.
inline bool saves_behind(const TrainOptions& options) {
  return !options.out.empty() && options.save_every > 0 && !options.save_and_wait;
}

}  // namespace shoal::train
