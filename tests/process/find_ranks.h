// Finds the processes of a run from outside: by a folder that stands in their command line, and by their rank.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "unit/launch/processes.h"

namespace shoal::testing {

// Those that run and have `folder` in their command line, and this rank in their environment if it is given.
inline std::vector<pid_t> processes_of(const std::string& folder, std::optional<int> rank = {}) {
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read(entry.path() / "cmdline").find(folder) == std::string::npos) continue;
    const std::string wanted = rank ? '\0' + ("RANK=" + std::to_string(*rank)) + '\0' : "";
    if (rank && ('\0' + read(entry.path() / "environ")).find(wanted) == std::string::npos) continue;
    if (const auto pid = static_cast<pid_t>(std::stol(name)); runs(pid)) found.push_back(pid);
  }
  return found;
}

}  // namespace shoal::testing
