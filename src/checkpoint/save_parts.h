// The parts of a save that all ranks do together, whether its files are written at once (save.cpp) or behind training
// (later_save.cpp): where it is written, and how it becomes a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/run_folder.h"
#include "checkpoint/state_ends.h"
#include "shoal/checkpoint.h"
#include "shoal/group.h"

namespace shoal::checkpoint {

inline const Subject kSaveSubject{"save", "checkpoint"};

struct BegunSave {
  std::unique_ptr<PendingCheckpoint> pending;  // rank 0 has it
  std::string temporary;                       // where every rank writes its file
  std::string leading_step;                    // that rank 0 saves
};

// Rank 0 makes the temporary folder, and tells the others. Throws SaveError on every rank if it cannot be.
BegunSave begin_save(Group& world, const SaveOptions& options);

// On each rank, before it writes: it saves what rank 0 saves, and sees the folder.
void check_begun(const BegunSave& begun, const SaveOptions& options);

// On rank 0, with what every rank has written: the manifest, the real name, `latest`, and old checkpoints removed.
// Returns the path.
std::string publish_save(PendingCheckpoint& pending, const StateSource& source, const SaveOptions& options,
                         const std::vector<std::string>& parts);

}  // namespace shoal::checkpoint
