// Memory as DiskFile wants it, with random bytes on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

namespace shoal::testing {

class AlignedMemory {
 public:
  explicit AlignedMemory(size_t nbytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(4096, nbytes)), &std::free), nbytes_(nbytes) {
    std::memset(data_.get(), 0, nbytes);
  }
  std::byte* data() const { return data_.get(); }
  size_t nbytes() const { return nbytes_; }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
  size_t nbytes_;
};

inline AlignedMemory random_memory(size_t nbytes, uint64_t seed) {
  AlignedMemory memory(nbytes);
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(memory.data() + i, &word, sizeof word);
  }
  return memory;
}

inline bool same_bytes(const AlignedMemory& a, const AlignedMemory& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data(), b.data(), a.nbytes()) == 0;
}

}  // namespace shoal::testing
