// See mapped_file.h.
#include "base/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/regular_file.h"
#include "shoal/error.h"

namespace shoal {

MappedFile::MappedFile(const std::string& path, const std::string& place) {
  const OpenedFile opened = open_regular(path);
  if (!opened.kind.empty()) {
    throw Error(place, fmt::format("{} is {}, not a regular file. Give one.", path, opened.kind));
  }
  const int fd = opened.fd;
  if (fd < 0) throw Error(place, fmt::format("{} cannot be opened: {}.", path, std::strerror(opened.error_number)));
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    const int reason = errno;
    ::close(fd);
    throw Error(place, fmt::format("{} cannot be read: {}.", path, std::strerror(reason)));
  }
  nbytes_ = static_cast<size_t>(status.st_size);
  if (nbytes_ > 0) {
    void* data = ::mmap(nullptr, nbytes_, PROT_READ, MAP_SHARED, fd, 0);
    const int reason = errno;
    if (data == MAP_FAILED) {
      ::close(fd);
      throw Error(place, fmt::format("{} cannot be mapped: {}.", path, std::strerror(reason)));
    }
    data_ = static_cast<const char*>(data);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), nbytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)) {}

}  // namespace shoal
