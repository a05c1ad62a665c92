// A folder of checkpoints as text: the names and the bytes of all files in it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "temp_folder.h"

namespace shoal::testing {

inline std::map<std::string, std::string> bytes_of_folder(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = std::filesystem::relative(entry.path(), folder).string();
    files[name] = entry.is_regular_file() ? text_of_file(entry.path().string()) : "";
  }
  return files;
}

}  // namespace shoal::testing
