// See io_error.h.
#include "store/io_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace shoal {

std::string words_of_errno(int error_number) {
  const char* name = strerrorname_np(error_number);
  const char* words = strerrordesc_np(error_number);
  if (name == nullptr || words == nullptr) return fmt::format("error {}", error_number);
  return fmt::format("{} ({})", words, name);
}

std::string advice_for_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return " Free some space there, or set nvme_path to another disk.";
    case EFBIG: return " Raise the limit of the file size (ulimit -f).";
    case EACCES:
    case EPERM: return " Check who may write there, or set nvme_path to another folder.";
    case EROFS: return " Set nvme_path to a disk that can be written.";
    case ENOENT:
    case ENOTDIR: return " Check nvme_path.";
    case EIO: return " The disk may be failing: look at the kernel's log, and resume from a checkpoint on another one.";
    default: return "";
  }
}

std::string disk_place(const std::filesystem::path& path) { return "disk " + path.string(); }

Error disk_error(const std::filesystem::path& path, const std::string& verb, int error_number) {
  return Error(disk_place(path),
               fmt::format("cannot {}: {}.{}", verb, words_of_errno(error_number), advice_for_errno(error_number)));
}

}  // namespace shoal
