// See listing.h.
#include "checkpoint/listing.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace fs = std::filesystem;

namespace {

Listed listed(const std::string& path) {
  Listed row;
  row.path = path;
  row.step = step_of_name(fs::path(path).lexically_normal().filename().string()).value_or(0);
  row.problem = incompleteness_of(path);
  if (!row.problem.empty()) return row;
  const Manifest manifest = read_manifest(path);
  row.step = manifest.step;
  row.world = manifest.world;
  row.params = static_cast<int64_t>(manifest.params.size());
  for (const SavedParam& param : manifest.params) row.numel += param.numel();
  for (const SavedFile& file : manifest.files) row.nbytes += file.nbytes;
  row.weights_only = manifest.weights_only;
  row.trained_only = manifest.leaves_out_frozen();
  return row;
}

}  // namespace

std::vector<Listed> list_checkpoints(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestName, error)) return {listed(path)};
  std::vector<Listed> rows;
  const std::string folder = checkpoints_in(path);
  const std::vector<std::string> names = steps_in(folder);
  if (names.empty()) {
    throw Error("checkpoint " + path, fs::is_directory(path, error)
                                          ? "holds no checkpoint. Name one, a folder of them, or that of a run."
                                          : "is not there. Check the path.");
  }
  const std::string latest = find_latest(folder, PassedOver::untold);  // the rows say what is not complete
  for (const std::string& name : names) {
    rows.push_back(listed((fs::path(folder) / name).string()));
    rows.back().is_latest = rows.back().path == latest;
  }
  return rows;
}

}  // namespace shoal::checkpoint
