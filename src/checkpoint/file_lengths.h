// Whether the files of a checkpoint are there as long as they were written: one answer for verify, for a resume that
// looks for a complete checkpoint, and for every load. Does not read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"

namespace shoal::checkpoint {

struct WrongLength {
  std::string what;   // "is missing", "is not a regular file", "is truncated: ...", "has ... bytes and not ...:
                      // something was added"
  int64_t there = 0;  // bytes of it that can be read
};
// Nothing when the file has its length.
std::optional<WrongLength> wrong_length(const std::string& folder, const SavedFile& file);

// Throws an Error that names the first file whose length is wrong.
void check_lengths(const std::string& folder, const Manifest& manifest);

}  // namespace shoal::checkpoint
