// See dead_runs.h.
#include "store/dead_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>

#include "base/text.h"
#include "store/io_error.h"

namespace shoal {

namespace fs = std::filesystem;

namespace {

// A folder between mkdir and its lock lives for moments; one this old was left by a kill in between. It holds no data.
constexpr time_t kNewFolderSeconds = 3600;

bool is_number(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

// The host in "<prefix><host>-<pid>-<random>"; nothing when it is no such name.
std::optional<std::string> host_of(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t second = name.rfind('-');
  if (second == std::string_view::npos || second == 0) return std::nullopt;
  const size_t first = name.rfind('-', second - 1);
  if (first == std::string_view::npos || first == 0) return std::nullopt;
  if (!is_number(name.substr(first + 1, second - first - 1), "0123456789")) return std::nullopt;
  if (!is_number(name.substr(second + 1), "0123456789abcdef")) return std::nullopt;
  return std::string(name.substr(0, first));
}

uint64_t allocated_nbytes(const fs::path& folder) {
  uint64_t nbytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat info {};
    if (::lstat(it->path().c_str(), &info) == 0) nbytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return nbytes;
}

enum class Owner : uint8_t {
  alive,    // holds the lock
  dead,     // the lock is free; it is ours now, until lock_fd is closed
  gone,     // the folder was removed meanwhile
  unknown,  // locks do not work here, or the folder may not be opened
};

Owner find_owner(const fs::path& folder, int& lock_fd) {
  lock_fd = ::open((folder / kScratchLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (lock_fd < 0 && errno == ENOENT) {  // a removal that was killed before its last step leaves it so, and empty
    return ::rmdir(folder.c_str()) == 0 || errno == ENOENT ? Owner::gone : Owner::unknown;
  }
  if (lock_fd < 0) return Owner::unknown;
  if (::flock(lock_fd, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Owner::alive : Owner::unknown;
  struct stat info {};
  return ::fstat(lock_fd, &info) == 0 && info.st_nlink > 0 ? Owner::dead : Owner::gone;
}

void remove_old_new_folder(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kNewFolderSeconds) {
    remove_run_folder(folder);
  }
}

}  // namespace

bool remove_run_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != kScratchLock) entries.push_back(it->path());
  }
  for (const fs::path& entry : entries) fs::remove_all(entry, error);
  if (::unlink((folder / kScratchLock).c_str()) != 0 && errno != ENOENT) return false;
  return ::rmdir(folder.c_str()) == 0 || errno == ENOENT;
}

std::vector<std::string> remove_dead_runs(const fs::path& parent, const std::string& host) {
  std::vector<std::string> notes;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string place = disk_place(parent);
  int removed = 0;
  uint64_t removed_nbytes = 0;
  for (const std::string& name : names) {
    const fs::path folder = parent / name;
    if (host_of(name, kNewScratchPrefix) == host) remove_old_new_folder(folder);
    const std::optional<std::string> of = host_of(name, kScratchPrefix);
    if (!of || !fs::is_directory(fs::symlink_status(folder, error))) continue;
    if (*of != host) {
      notes.push_back(fmt::format(
          "[{}] {} is of another host, {}, and was left alone. Remove it if no run uses it there.", place, name, *of));
      continue;
    }
    int lock_fd = -1;
    const Owner owner = find_owner(folder, lock_fd);
    if (owner == Owner::dead) {
      const uint64_t nbytes = allocated_nbytes(folder);
      if (remove_run_folder(folder)) {
        ++removed;
        removed_nbytes += nbytes;
      } else {
        notes.push_back(fmt::format("[{}] {} is of a dead run and cannot be removed. Remove it.", place, name));
      }
    } else if (owner == Owner::unknown) {
      notes.push_back(fmt::format(
          "[{}] whether the run of {} is alive cannot be told; it was left alone. Remove it if no run uses it.", place,
          name));
    }
    if (lock_fd >= 0) ::close(lock_fd);
  }
  if (removed > 0) {
    notes.push_back(fmt::format("[{}] removed {} folder{} of dead runs; {} bytes ({}) came back.", place, removed,
                                removed == 1 ? "" : "s", removed_nbytes, format_nbytes(removed_nbytes)));
  }
  return notes;
}

}  // namespace shoal
