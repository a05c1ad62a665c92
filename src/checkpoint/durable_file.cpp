// See durable_file.h.
#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/regular_file.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

std::string remedy_of(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return " Free some space there, or save to another disk.";
    case EFBIG: return " Raise the limit of the file size (ulimit -f).";
    case EACCES:
    case EPERM: return " Check who may write there.";
    case EROFS: return " Save to a disk that can be written.";
    case EIO: return " The disk may be failing.";
    default: return "";
  }
}

// What the system says about an error, with its name.
std::string words_of(int error_number) {
  const char* name = strerrorname_np(error_number);
  return fmt::format("{} ({})", std::strerror(error_number), name != nullptr ? name : std::to_string(error_number));
}

int open_or_throw(std::string_view verb, const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) throw_io_error(verb, path, errno);
  return fd;
}

// Some file systems take O_DIRECT and refuse the writes: then through the page cache. Several threads may come here
// together; the flag is the file's, so whoever was refused tries again, also where another has cleared it already.
void leave_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_DIRECT) != 0) ::fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

}  // namespace

void throw_io_error(std::string_view verb, const std::string& path, int error_number) {
  throw Error("checkpoint",
              fmt::format("cannot {} {}: {}.{}", verb, path, words_of(error_number), remedy_of(error_number)));
}

DurableFile DurableFile::create(const std::string& path) {
  return DurableFile(path, open_or_throw("create", path, O_WRONLY | O_CREAT | O_TRUNC));
}
DurableFile DurableFile::create_sized(const std::string& path, int64_t nbytes, WriteAt write) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  const int fd = ::open(path.c_str(), kFlags | O_DIRECT, 0666);
  const bool refused = fd < 0 && errno == EINVAL;  // a file system that has no such way
  if (fd < 0 && !refused) throw_io_error("create", path, errno);
  DurableFile file(path, refused ? open_or_throw("create", path, O_RDWR | O_CREAT | O_TRUNC) : fd);
  file.write_ = std::move(write);
  while (nbytes > 0 && ::fallocate(file.fd_, 0, 0, nbytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENODEV) break;  // what cannot take space says so when it is written
    throw_io_error("write", path, errno);
  }
  return file;
}
DurableFile DurableFile::open_read(const std::string& path) {
  const OpenedFile opened = open_regular(path);
  if (!opened.kind.empty()) {
    throw Error("checkpoint", fmt::format("{} is {}, not a regular file. Put the file there.", path, opened.kind));
  }
  if (opened.fd < 0) throw_io_error("open", path, opened.error_number);
  return DurableFile(path, opened.fd);
}
DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(other.fd_), write_(std::move(other.write_)) {
  other.fd_ = -1;
}
DurableFile::~DurableFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DurableFile::write_at(int64_t offset, const void* data, size_t nbytes) {
  const char* from = static_cast<const char*>(data);
  bool was_refused = false;
  while (nbytes > 0) {
    const ssize_t written = write_ ? write_(fd_, from, nbytes, offset) : ::pwrite(fd_, from, nbytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && !std::exchange(was_refused, true)) {
      leave_direct(fd_);
      continue;
    }
    if (written < 0) throw_io_error("write", path_, errno);
    if (written == 0) throw_io_error("write", path_, ENOSPC);
    from += written, offset += written, nbytes -= static_cast<size_t>(written);
  }
}

void DurableFile::read_at(int64_t offset, void* data, size_t nbytes) const {
  char* to = static_cast<char*>(data);
  while (nbytes > 0) {
    const ssize_t count = ::pread(fd_, to, nbytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("read", path_, errno);
    if (count == 0) {
      throw Error("checkpoint", fmt::format("{} ends at byte {}, and {} more were expected. The file is truncated.",
                                            path_, offset, nbytes));
    }
    to += count, offset += count, nbytes -= static_cast<size_t>(count);
  }
}

int64_t DurableFile::nbytes() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw_io_error("read", path_, errno);
  return info.st_size;
}

void DurableFile::cut(int64_t nbytes) {
  if (::ftruncate(fd_, nbytes) != 0) throw_io_error("write", path_, errno);
}

void DurableFile::sync() {
  if (::fsync(fd_) != 0) throw_io_error("sync", path_, errno);
}

std::string read_text(const std::string& path) {
  const DurableFile file = DurableFile::open_read(path);
  std::string text(static_cast<size_t>(file.nbytes()), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  DurableFile file = DurableFile::create(path);
  file.write_at(0, text.data(), text.size());
  file.sync();
}

void sync_folder(const std::string& path) {
  const int fd = open_or_throw("open", path, O_RDONLY | O_DIRECTORY);
  const int failed = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some network file systems cannot sync a folder, and do not need to.
  if (failed != 0 && failed != EINVAL) throw_io_error("sync", path, failed);
}

void make_folders(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  const std::filesystem::path parent =
      folder.has_filename() ? folder.parent_path() : folder.parent_path().parent_path();
  make_folders(parent.string());
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) throw_io_error("make the folder", folder.string(), errno);
  if (!std::filesystem::is_directory(folder, error)) throw_io_error("make the folder", folder.string(), ENOTDIR);
  sync_folder(parent.string());
}

void replace(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != EEXIST && errno != ENOTEMPTY) throw_io_error("rename to", to, errno);
  // A folder that is not empty stands there: exchange the two, so that a whole one stands there at every moment.
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw_io_error("rename to", to, errno);
  // A file system without an exchange: `to` is missing for a moment.
  const std::string aside = from + "-aside";
  if (::rename(to.c_str(), aside.c_str()) != 0) throw_io_error("rename", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error("rename to", to, errno);
  if (::rename(aside.c_str(), from.c_str()) != 0) throw_io_error("rename to", from, errno);
}

}  // namespace shoal::checkpoint
