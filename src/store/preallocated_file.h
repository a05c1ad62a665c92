// A new file with all its space taken on the disk at once, opened past the page cache where the file system allows it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace shoal {

struct PreallocatedFile {
  int fd = -1;                 // the caller closes it
  bool direct = false;         // opened with O_DIRECT
  std::string why_not_direct;  // the system's words
};

// Makes a file of nbytes zeros. Throws shoal::Error when it is there already, when the space is not (with the bytes
// wanted and free), or when the folder cannot be written; leaves no file then.
PreallocatedFile make_preallocated_file(const std::filesystem::path& path, size_t nbytes);

}  // namespace shoal
