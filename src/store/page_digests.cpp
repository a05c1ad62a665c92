// See page_digests.h.
#include "store/page_digests.h"

#include <array>

#include "base/digest.h"

namespace shoal {

PageDigests::PageDigests(size_t file_nbytes) {
  const std::array<std::byte, kPageNbytes> zeros{};
  digests_.assign(file_nbytes / kPageNbytes, digest_of(zeros.data(), zeros.size()));
}

void PageDigests::keep(uint64_t offset, const std::byte* memory, size_t nbytes) {
  const uint64_t page = offset / kPageNbytes;
  for (size_t i = 0; i < nbytes / kPageNbytes; ++i) {
    digests_[page + i] = digest_of(memory + i * kPageNbytes, kPageNbytes);
  }
}

std::optional<uint64_t> PageDigests::first_difference(uint64_t offset, const std::byte* memory, size_t nbytes) const {
  const uint64_t page = offset / kPageNbytes;
  for (size_t i = 0; i < nbytes / kPageNbytes; ++i) {
    if (digests_[page + i] != digest_of(memory + i * kPageNbytes, kPageNbytes)) return (page + i) * kPageNbytes;
  }
  return std::nullopt;
}

}  // namespace shoal
