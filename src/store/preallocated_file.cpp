// See preallocated_file.h.
#include "store/preallocated_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/text.h"
#include "shoal/error.h"
#include "store/io_error.h"

namespace shoal {

namespace {

constexpr size_t kPage = 4096;

// Bytes that this user may still take on the file's disk; 0 when the system does not say.
uint64_t free_nbytes(int fd) {
  struct statvfs info {};
  if (::fstatvfs(fd, &info) != 0) return 0;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

// 0 or an errno. Takes the space for real: a sparse file would run out of it in the middle of training.
int take_space(int fd, size_t nbytes) {
  if (nbytes == 0) return 0;
  const auto length = static_cast<off_t>(nbytes);
  while (::fallocate(fd, 0, 0, length) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP) return errno;
    return ::posix_fallocate(fd, 0, length);  // writes where the file system cannot allocate
  }
  return 0;
}

// 0 or an errno: whether a page can really be read through it. Some file systems take the flag and refuse the reads.
int try_direct_read(int fd, size_t nbytes) {
  if (nbytes == 0) return 0;
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(kPage, kPage), &std::free);
  return ::pread(fd, page.get(), kPage, 0) < 0 ? errno : 0;
}

void open_direct(const std::filesystem::path& path, size_t nbytes, PreallocatedFile& file) {
  const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  const int failed = fd < 0 ? errno : try_direct_read(fd, nbytes);
  if (failed != 0) {
    if (fd >= 0) ::close(fd);
    file.why_not_direct = words_of_errno(failed);
    return;
  }
  ::close(file.fd);
  file.fd = fd;
  file.direct = true;
}

}  // namespace

PreallocatedFile make_preallocated_file(const std::filesystem::path& path, size_t nbytes) {
  PreallocatedFile file;
  // Without O_DIRECT at first: where posix_fallocate must write, it writes single bytes.
  file.fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file.fd < 0) throw disk_error(path, "make the file", errno);
  const uint64_t free_before = free_nbytes(file.fd);
  if (const int failed = take_space(file.fd, nbytes); failed != 0) {
    ::close(file.fd);
    ::unlink(path.c_str());
    throw Error(disk_place(path),
                fmt::format("cannot take {} bytes ({}), {} bytes ({}) are free: {}.{}", nbytes, format_nbytes(nbytes),
                            free_before, format_nbytes(free_before), words_of_errno(failed), advice_for_errno(failed)));
  }
  open_direct(path, nbytes, file);
  return file;
}

}  // namespace shoal
