// See resolve.h.
#include "checkpoint/resolve.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/run_folder.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace fs = std::filesystem;

namespace {

// By its manifest, or by its name: one that lost its manifest is told as such, not taken for a folder of others.
bool is_one(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / kManifestName, error)) return true;
  const fs::path plain = path.lexically_normal();
  return step_of_name((plain.has_filename() ? plain : plain.parent_path()).filename().string()).has_value();
}

}  // namespace

std::string checkpoints_in(const std::string& path) {
  std::error_code error;
  const fs::path below = fs::path(path) / "checkpoints";
  if (is_one(path) || !steps_in(path).empty() || !fs::is_directory(below, error)) return path;
  return below.string();
}

std::string resolve_checkpoint(const std::string& path, const std::string& place, PassedOver passed_over) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw Error(place,
                fmt::format("{} is {}. Check the path.", path, fs::exists(path, error) ? "no folder" : "not there"));
  }
  if (is_one(path)) return path;
  const std::string latest = find_latest(checkpoints_in(path), passed_over);
  if (latest.empty()) {
    throw Error(place, fmt::format("{} holds no complete checkpoint. Name a checkpoint, a folder of them, or that of "
                                   "a run.",
                                   path));
  }
  return latest;
}

}  // namespace shoal::checkpoint
