// See file_lengths.h.
#include "checkpoint/file_lengths.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

std::string path_in(const std::string& folder, const SavedFile& file) {
  return (std::filesystem::path(folder) / file.name).string();
}

}  // namespace

std::optional<WrongLength> wrong_length(const std::string& folder, const SavedFile& file) {
  struct stat status {};
  if (::stat(path_in(folder, file).c_str(), &status) != 0) {
    const int reason = errno;
    return WrongLength{reason == ENOENT ? "is missing" : fmt::format("cannot be read: {}", std::strerror(reason)), 0};
  }
  if (!S_ISREG(status.st_mode)) return WrongLength{"is not a regular file", 0};
  const int64_t nbytes = status.st_size;
  if (nbytes < file.nbytes) {
    return WrongLength{fmt::format("is truncated: it has {} bytes and not {}", nbytes, file.nbytes), nbytes};
  }
  if (nbytes > file.nbytes) {
    return WrongLength{fmt::format("has {} bytes and not {}: something was added", nbytes, file.nbytes), nbytes};
  }
  return std::nullopt;
}

void check_lengths(const std::string& folder, const Manifest& manifest) {
  for (const SavedFile& file : manifest.files) {
    const std::optional<WrongLength> wrong = wrong_length(folder, file);
    if (!wrong) continue;
    throw Error("checkpoint", fmt::format("{} {}. Use another checkpoint, or a copy of this file.",
                                          path_in(folder, file), wrong->what));
  }
}

}  // namespace shoal::checkpoint
