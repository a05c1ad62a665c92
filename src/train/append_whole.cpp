// See append_whole.h.
#include "train/append_whole.h"

#include <unistd.h>

#include <cerrno>

namespace shoal::train {

int append_whole(int fd, const std::string& bytes) {
  const off_t before = ::lseek(fd, 0, SEEK_END);
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = errno;
      // Where even that fails, a half stays; readers pass over it.
      if (written > 0) static_cast<void>(!::ftruncate(fd, before));
      return reason;
    }
    written += static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace shoal::train
