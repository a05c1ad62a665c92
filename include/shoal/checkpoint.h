// Checkpoints of an engine: a folder per step that any number of ranks, stage and precision can read. The format is in
// docs/formats/checkpoint.md.
//
//   shoal::save_checkpoint(engine, *world, {.folder = "run/checkpoints", .step = 100, .keep_last = 3});
//   auto loaded = shoal::load_checkpoint(engine, *world, "run/checkpoints");   // the latest complete one
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/engine.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

struct SaveOptions {
  std::string folder;                        // of all checkpoints of a run; made if it is not there
  int64_t step = 0;                          // names this one: <folder>/step-00000100
  int keep_last = 0;                         // complete checkpoints to keep, this one counted; 0: all
  std::map<std::string, std::string> extra;  // the caller's own: data position, model config; equal on every rank
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

struct LoadedCheckpoint {
  std::string path;
  int64_t step = 0;
  int saved_world = 1;
  std::string saved_optimizer;           // "AdamW"; "": not known
  std::vector<StateKind> unused_states;  // that were saved and that this engine's optimizer does not keep
  std::map<std::string, std::string> extra;
};

// `path`: one checkpoint, or a folder of them or of a run (then its latest complete one). Every rank calls it. The
// engine must have the same parameters by name and shape. Moments that its optimizer keeps must be there; others are
// left out, and named in the result.
LoadedCheckpoint load_checkpoint(Engine& engine, Group& world, const std::string& path);

// The latest complete checkpoint in a folder, or "" when there is none.
std::string find_latest_checkpoint(const std::string& folder);

}  // namespace shoal
