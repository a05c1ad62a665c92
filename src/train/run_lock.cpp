// See run_lock.h.
#include "train/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "shoal/error.h"

namespace shoal::train {

namespace {

std::string lock_path(const std::string& out) { return (std::filesystem::path(out) / ".lock").string(); }

// "process 123 on host-a, since 2026-01-31 12:00:00 UTC".
std::string describe_self() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> when{};
  std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S", &utc);
  return fmt::format("process {} on {}, since {} UTC", ::getpid(), host.data(), when.data());
}

[[noreturn]] void throw_held(const std::string& out, int fd) {
  std::array<char, 512> said{};
  const ssize_t count = ::pread(fd, said.data(), said.size(), 0);
  std::string_view text(said.data(), count > 0 ? static_cast<size_t>(count) : 0);
  text = text.substr(0, text.find('\n'));
  const std::string who = text.empty() ? "" : fmt::format(", {}", text);
  ::close(fd);
  throw Error("--out",
              fmt::format("{} is in use by another run{}. Wait for its end, or give another folder.", out, who));
}

}  // namespace

RunLock::RunLock(const std::string& out) {
  const std::string path = lock_path(out);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) {
    throw Error("--out", fmt::format("{} cannot be opened: {}. Give another folder.", path, std::strerror(errno)));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) throw_held(out, fd);
    ::close(fd);  // no locks here
    return;
  }
  fd_ = fd;
  const std::string text = describe_self() + "\n";
  // On a full disk the lock holds all the same, without a name.
  [[maybe_unused]] const bool named = ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) > 0;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

void check_unlocked(const std::string& out) {
  const int fd = ::open(lock_path(out).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) throw_held(out, fd);
  ::close(fd);
}

}  // namespace shoal::train
