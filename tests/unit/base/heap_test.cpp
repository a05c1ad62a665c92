// Freed memory that stays with the process, by the pages that the system had to bring.
#include "shoal/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <vector>

namespace shoal {
namespace {

constexpr size_t kPageNbytes = 4096;

// Pages that the system had to bring while every page of the block was written.
long faults_of_a_block(size_t nbytes) {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const long before = faults();
  auto* const block = static_cast<volatile char*>(std::malloc(nbytes));
  for (size_t i = 0; i < nbytes; i += kPageNbytes) block[i] = 1;
  const long after = faults();
  std::free(const_cast<char*>(block));
  return after - before;
}

TEST(Heap, AFreedBlockComesBackWithItsPages) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  constexpr size_t kNbytes = size_t{24} << 20;
  keep_freed_memory();
  faults_of_a_block(kNbytes);
  EXPECT_LT(faults_of_a_block(kNbytes), static_cast<long>(kNbytes / kPageNbytes / 10));
}

}  // namespace
}  // namespace shoal
