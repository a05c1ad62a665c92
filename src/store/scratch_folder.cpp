// See scratch_folder.h.
#include "store/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <system_error>
#include <utility>

#include "shoal/error.h"
#include "store/dead_runs.h"
#include "store/io_error.h"

namespace shoal {

namespace fs = std::filesystem;

namespace {

std::string name_of_host() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string host = name.data();
  for (char& letter : host) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '.' && letter != '-') letter = '_';
  }
  return host.empty() ? "localhost" : host;
}

void make_parent(const fs::path& parent) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw disk_error(parent, "make the folder", error.value());
}

// Folders that are there, for a process that ends while something still holds them: weights of parameters that live as
// long as a Python interpreter. Of the process, for only its end finds those that no destructor comes to.
class Living {
 public:
  static Living& of_process() {
    static Living* const living = [] {
      std::atexit([] { of_process().remove(); });
      return new Living;  // stays: folders may go later than it would
    }();
    return *living;
  }
  void add(const fs::path& folder) {
    const std::lock_guard lock(mutex_);
    folders_[folder] = ::getpid();
  }
  void take(const fs::path& folder) {
    const std::lock_guard lock(mutex_);
    folders_.erase(folder);
  }

 private:
  // Those of a forked child's parent stay. A child that was forked while somebody had the lock leaves its own to the
  // next run.
  void remove() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    for (const auto& [folder, owner] : folders_) {
      if (owner == ::getpid()) remove_run_folder(folder);
    }
  }

  std::mutex mutex_;
  std::map<fs::path, pid_t> folders_;
};

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& parent, const std::string& host) : owner_(::getpid()) {
  make_parent(parent);
  const std::string of = host.empty() ? name_of_host() : host;
  notes_ = remove_dead_runs(parent, of);

  std::random_device random;
  const std::string id = fmt::format("{}-{}-{:08x}{:08x}", of, owner_, random(), random());
  const fs::path fresh = parent / (std::string(kNewScratchPrefix) + id);
  const fs::path named = parent / (std::string(kScratchPrefix) + id);
  const auto give_up = [&](const std::string& verb, const fs::path& path) {
    const int error_number = errno;
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    if (lock_fd_ >= 0) ::close(lock_fd_);
    throw disk_error(path, verb, error_number);
  };
  // Others may read nothing here: these are the weights of somebody's model.
  if (::mkdir(fresh.c_str(), 0700) != 0) throw disk_error(fresh, "make the folder", errno);
  lock_fd_ = ::open((fresh / kScratchLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) give_up("make its lock", fresh);
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    // Nobody can hold it. Without locks no run removes what others left, so this one is safe from them.
    notes_.push_back(fmt::format("[{}] has no file locks: {}. What a killed run leaves there is not removed.",
                                 disk_place(parent), words_of_errno(errno)));
  }
  if (::rename(fresh.c_str(), named.c_str()) != 0) give_up("name the folder", named);
  path_ = named;
  Living::of_process().add(path_);
}

ScratchFolder::~ScratchFolder() {
  Living::of_process().take(path_);
  if (::getpid() == owner_) remove_run_folder(path_);  // what cannot be removed, the next run removes
  ::close(lock_fd_);
}

}  // namespace shoal
