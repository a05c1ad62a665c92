// The folder of a run's checkpoints: names, which are complete, which is the latest, and how one is added and removed
// so that a kill at any moment leaves only complete ones under real names.
//
//   step-00000100/             a checkpoint
//   .step-00000100.tmp-<id>/   being written; locked by its writer
//   .step-00000100.old-<id>/   being removed
//   latest                     the name of the last one saved
//   .latest.tmp-<id>           being written
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace shoal::checkpoint {

std::string step_name(int64_t step);                           // "step-00000100"
std::optional<int64_t> step_of_name(const std::string& name);  // nothing when it is no such name
std::vector<std::string> steps_in(const std::string& folder);  // names, by step; whether complete or not

// Reads a checkpoint's manifest. Throws an Error that says what is wrong with a folder that is none, or not whole.
Manifest read_manifest(const std::string& path);
// Also that every file is there with its length; "" if so. Does not read the files.
std::string incompleteness_of(const std::string& path);

// Names a save's temporary files, and while it lives nothing in this process takes them for leftovers: a file system
// may have no locks.
class SaveId {
 public:
  SaveId();
  ~SaveId();
  SaveId(const SaveId&) = delete;
  SaveId& operator=(const SaveId&) = delete;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// A checkpoint on its way. Rank 0 has one.
class PendingCheckpoint {
 public:
  // Makes `folder` if needed, takes away what dead saves left there, and makes the temporary folder.
  PendingCheckpoint(const std::string& folder, int64_t step);
  ~PendingCheckpoint();  // removes the temporary folder unless it was published
  PendingCheckpoint(const PendingCheckpoint&) = delete;
  PendingCheckpoint& operator=(const PendingCheckpoint&) = delete;

  const std::string& temporary_path() const { return temporary_; }
  // Writes the manifest and gives the folder its real name; `latest` names it, but where another save has meanwhile
  // made it name a later step it stays. One of the same step is replaced. Returns the path.
  std::string publish(const std::string& manifest_text);
  void abandon() noexcept;

 private:
  std::string folder_;
  std::string name_;
  SaveId id_;
  std::string temporary_;
  std::string latest_before_;  // that `latest` named when this one began: a run may go on from further back
  int lock_fd_ = -1;           // of the temporary folder: tells a living save from a dead one
};

// Removes what dead saves left. What a living save holds, of this process or another, is left alone.
void remove_leftovers(const std::string& folder);

// Keeps the checkpoint of `step` and the `keep_last` - 1 complete ones before it; removes earlier ones. Later ones, of
// a run that was taken up again further back, are left alone. Returns what could not be removed, "" if nothing.
std::string remove_old(const std::string& folder, int64_t step, int keep_last);

}  // namespace shoal::checkpoint
