// See regular_file.h.
#include "base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "shoal/error.h"

namespace shoal {

namespace {

std::string kind_named(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

OpenedFile open_regular(const std::string& path) {
  OpenedFile opened;
  struct stat status {};
  // Looked at before it is opened, and again after: another may stand there by then.
  if (::stat(path.c_str(), &status) != 0) {
    opened.error_number = errno;
    return opened;
  }
  if (S_ISREG(status.st_mode)) {
    opened.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened.fd < 0 || ::fstat(opened.fd, &status) != 0) opened.error_number = errno;
  }
  if (opened.error_number == 0 && S_ISREG(status.st_mode)) return opened;
  if (opened.error_number == 0) opened.kind = kind_named(status.st_mode);
  if (opened.fd >= 0) ::close(opened.fd);
  opened.fd = -1;
  return opened;
}

std::string read_regular(const std::string& path, const std::string& place, const std::string& remedy) {
  const auto refuse = [&](const std::string& why) {
    throw Error(place, fmt::format("the file cannot be read: {}. {}", why, remedy));
  };
  const OpenedFile opened = open_regular(path);
  if (opened.fd < 0) refuse(opened.kind.empty() ? std::strerror(opened.error_number) : "it is " + opened.kind);
  std::string text;
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t count = ::read(opened.fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    const int error_number = errno;
    if (count <= 0) ::close(opened.fd);
    if (count < 0) refuse(std::strerror(error_number));
    if (count <= 0) return text;
    text.append(piece.data(), static_cast<size_t>(count));
  }
}

}  // namespace shoal
