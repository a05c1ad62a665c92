// See digest.h.
#include "kernels/digest.h"

#include <bit>

#include "base/mix.h"

namespace shoal::kernels {

uint64_t digest_elements(const float* values, int64_t begin, int64_t numel) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < numel; ++i) {
    // One to one in (index, bits) up to 2^32 elements; beyond that the index turns over into the bits.
    const auto index = static_cast<uint64_t>(begin + i);
    sum += mixed(std::rotl(index, 32) + std::bit_cast<uint32_t>(values[i]));
  }
  return sum;
}

}  // namespace shoal::kernels
