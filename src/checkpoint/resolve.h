// What a path that the user gave means: one checkpoint, a folder of checkpoints, or the folder of a run, which keeps
// them in checkpoints/. Every command that takes such a path asks here.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::checkpoint {

// Whether a line on stderr names each checkpoint that was passed over since it is not complete. Where every rank looks
// for itself, one tells.
enum class PassedOver : uint8_t { told, untold };

// The folder of checkpoints that `path` means: that of a run if there is one below it and no checkpoint in `path`
// itself; else `path`.
std::string checkpoints_in(const std::string& path);

// The one checkpoint that `path` means; of a folder its latest. Throws an Error of this place when there is none. A
// checkpoint that is named itself may be damaged.
std::string resolve_checkpoint(const std::string& path, const std::string& place,
                               PassedOver passed_over = PassedOver::told);

// As find_latest_checkpoint of shoal/checkpoint.h; in latest.cpp.
std::string find_latest(const std::string& folder, PassedOver passed_over);

}  // namespace shoal::checkpoint
