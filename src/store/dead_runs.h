// What runs left behind under nvme_path: finds it, and removes what is certainly dead. Called by ScratchFolder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

inline constexpr std::string_view kScratchPrefix = "shoal-";
inline constexpr std::string_view kNewScratchPrefix = ".shoal-new-";
inline constexpr const char* kScratchLock = "lock";

// Removes the folders of dead runs of `host`. Folders whose lock is held, or of other hosts, are left alone. Returns
// what a user should know, a line each.
std::vector<std::string> remove_dead_runs(const std::filesystem::path& parent, const std::string& host);

// Removes a folder, its lock last: a removal that is killed leaves a folder that is still recognised. False when
// something in it cannot be removed.
bool remove_run_folder(const std::filesystem::path& folder);

}  // namespace shoal
