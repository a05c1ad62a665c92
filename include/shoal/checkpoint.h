// Checkpoints of an engine: a folder per step that any number of ranks, stage and precision can read. The format is in
// docs/formats/checkpoint.md.
//
//   shoal::save_checkpoint(engine, *world, {.folder = "run/checkpoints", .step = 100, .keep_last = 3});
//   auto loaded = shoal::load_checkpoint(engine, *world, "run/checkpoints");   // the latest complete one
//
// Behind training:
//   shoal::CheckpointSaver saver(engine, *world);
//   for (...) {
//     ... a step ...
//     saver.poll_saved();
//     if (step % 100 == 0) saver.save_later({.folder = "run/checkpoints", .step = step});
//   }
//   saver.wait_saved();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/engine.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

struct SaveOptions {
  std::string folder;  // of all checkpoints of a run; made if it is not there
  int64_t step = 0;    // names this one: <folder>/step-00000100
  int keep_last = 0;   // complete checkpoints to keep, this one counted; 0: all
  // The caller's own: data position, model config; equal on every rank.
  std::map<std::string, std::string> extra = {};
  // Leave frozen parameters out, for a caller that can make them again. A load of such a checkpoint leaves the engine's
  // own as they are, and the caller sees to it that they are the same.
  bool trained_only = false;
};

// A save failed on some rank, and every rank says so: the run itself is sound and may go on.
class SaveError : public Error {
 public:
  explicit SaveError(std::string_view message) : Error("checkpoint save", message) {}
};

// Every rank calls it, between passes. Between the micro-steps of a step it saves the state of the last step; what is
// accumulated stays in memory, and is named in the checkpoint's extra ("shoal.accumulated") and on stderr. Until it is
// complete nothing of it is seen under its name; what was saved before is not touched. Throws SaveError on every rank
// if any rank could not write (no space, no permission); the half is removed. Returns the checkpoint's path.
std::string save_checkpoint(const Engine& engine, Group& world, const SaveOptions& options);

struct SavedCheckpoint {
  std::string path;
  int64_t step = 0;
  double seconds = 0;  // from save_later until it was known to be complete
};

// Saves whose files are written behind training: the same files, to the byte, with the same promises. save_later takes
// a picture of the state and returns; threads of its own write, checksum and sync. A save becomes a checkpoint when the
// ranks come by together: in poll_saved, wait_saved, or the next save_later. Until then it is none, and what was saved
// before stays. The picture is a copy in host memory, kept from save to save, of shoal.save_memory bytes at most, or,
// where that is 0, of half of what is free for the rank, and within shoal.host_budget where that is given, but never of
// less than 20 MiB; what that does not hold is written before save_later returns. One save is under way at a time. A
// save_checkpoint of a later step into the same folder may be complete before it: then `latest` stays with the later
// one.
//
// Every rank has one and makes the same calls in the same order; is_ready() and the like are a rank's own. One thread
// calls it. The engine is read in save_later alone and may be gone after; the world outlives this object.
class CheckpointSaver {
 public:
  CheckpointSaver(const Engine& engine, Group& world);
  // Communicates nothing. A save that is still under way is lost, and rank 0 says so on stderr: call wait_saved first.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Between passes, as save_checkpoint. Waits for a save that is under way, and says so on stderr. Throws SaveError on
  // every rank if that one failed, or if this one cannot begin; then none is under way, and the run may go on.
  void save_later(const SaveOptions& options);
  // Once a step: notices what has been written. Takes one small collective while a save is under way, else none, and
  // waits for no disk, but where a save has failed, to remove its half. True: none is under way. That one failed is
  // told on stderr, and thrown by the next call of wait_saved or save_later.
  bool poll_saved();
  // Waits for the save that is under way, if any. Throws SaveError on every rank if it failed. The last that became
  // complete; nothing: none did.
  std::optional<SavedCheckpoint> wait_saved();

  bool under_way() const;
  // For loops that tell each other more than this once a step: whether go_on() finds this rank's part done, and the
  // call itself, which all ranks make together when all of them said so. It throws SaveError.
  bool is_ready() const;
  void go_on();
  // Waits for no other rank: until is_ready(), for so many seconds at most. True: it is.
  bool wait_ready(double seconds) const;
  const std::optional<SavedCheckpoint>& last() const;
  double written_share() const;  // of this rank's file
  // Bytes of this rank's file, and of memory for the picture; of the last save_later.
  size_t state_nbytes() const;
  size_t picture_nbytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct LoadedCheckpoint {
  std::string path;
  int64_t step = 0;
  int saved_world = 1;
  std::string saved_optimizer;           // "AdamW"; "": not known
  std::vector<StateKind> unused_states;  // that were saved and that this engine's optimizer does not keep
  std::map<std::string, std::string> extra;
  bool trained_only = false;  // frozen parameters are not in it, and stayed as they were
};

// `path`: one checkpoint, or a folder of them or of a run (then its latest complete one). Every rank calls it. The
// engine must have the same parameters by name and shape. Moments that its optimizer keeps must be there; others are
// left out, and named in the result.
LoadedCheckpoint load_checkpoint(Engine& engine, Group& world, const std::string& path);

// The latest complete checkpoint in a folder, or "" when there is none.
std::string find_latest_checkpoint(const std::string& folder);

}  // namespace shoal
