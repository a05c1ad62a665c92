// The checkpoints of a run: saved behind training or waited for, by --save-and-wait; what is said of them, and what a
// failed one means to the run. The trainer says when, and comes by once a step. Every rank has one and makes the same
// calls in the same order.
#pragma once

#include <cstdint>

#include "shoal/checkpoint.h"
#include "shoal/engine.h"
#include "shoal/group.h"
#include "train/options.h"
#include "train/progress.h"
#include "train/run_events.h"

namespace shoal::train {

class RunSaves {
 public:
  // All of them outlive this.
  RunSaves(const TrainOptions& options, const Engine& engine, Group& world, Progress& progress, RunEvents& happened)
      : options_(options),
        engine_(engine),
        world_(world),
        progress_(progress),
        happened_(happened),
        saver_(engine, world) {}

  // The checkpoint of this step is there: the run was taken up from it.
  void found(int64_t step) { last_step_ = step; }
  // Whether it was saved already, or tried.
  bool has(int64_t step) const { return last_step_ == step; }

  // In the middle of a run. Waits for one that is under way.
  void begin(const SaveOptions& options);
  // At its end: returns when it is complete, and every one before it.
  void save(const SaveOptions& options);
  // Waits for the one that is under way, if any.
  void wait();

  // Of a save that is under way: whether this rank's part needs no waiting for, and with all ranks' word, what follows.
  bool is_ready() const { return saver_.is_ready(); }
  void see(bool all_ready);

  // How long saving has held training up since this was last called.
  double take_held_up_ms();
  // The newest of them could not be written.
  bool last_failed() const { return last_failed_; }

 private:
  void begin_behind(const SaveOptions& options);
  void say_memory();
  void save_now(const SaveOptions& options);
  void advance();
  void finish();
  void tell_failure(const SaveError& error, int64_t step, double ms);

  const TrainOptions& options_;
  const Engine& engine_;
  Group& world_;
  Progress& progress_;
  RunEvents& happened_;
  CheckpointSaver saver_;
  int64_t last_step_ = -1;    // saved, under way, or tried
  int64_t behind_step_ = -1;  // under way
  double behind_held_up_ms_ = 0;
  double held_up_ms_ = 0;
  bool said_memory_ = false;
  bool last_failed_ = false;
};

}  // namespace shoal::train
