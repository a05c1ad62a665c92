// The checksum and the length of a whole file, read once, in pieces. For the files that Python writes.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::checkpoint {

struct FileDigest {
  int64_t nbytes = 0;
  uint64_t digest = 0;
};
// Throws when it cannot be read, or is no regular file.
FileDigest digest_of_file(const std::string& path);

}  // namespace shoal::checkpoint
