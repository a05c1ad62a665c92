// A file's bytes in memory, read-only, shared with other processes through the page cache. For data larger than memory.
#pragma once

#include <cstddef>
#include <string>

namespace shoal {

class MappedFile {
 public:
  // Throws shoal::Error at `place` when it cannot be read. An empty file is one of 0 bytes.
  MappedFile(const std::string& path, const std::string& place);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  const char* data_ = nullptr;
  size_t nbytes_ = 0;
};

}  // namespace shoal
