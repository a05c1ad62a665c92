// Checksums (base/digest.h) of the pages of a file, kept in memory: 8 bytes for each 4096. Pages and not blocks, so
// that a read may begin and end elsewhere than the write did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

class PageDigests {
 public:
  static constexpr size_t kPageNbytes = 4096;

  // A file of zeros. Offsets and lengths are multiples of a page, here and below.
  explicit PageDigests(size_t file_nbytes);

  // The bytes at `offset` of the file are these from now on. Different pages may be kept and compared at once.
  void keep(uint64_t offset, const std::byte* memory, size_t nbytes);
  // The offset of the first page that is not what was kept.
  std::optional<uint64_t> first_difference(uint64_t offset, const std::byte* memory, size_t nbytes) const;

 private:
  std::vector<uint64_t> digests_;
};

}  // namespace shoal
