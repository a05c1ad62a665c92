#include "device/slab.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "shoal/error.h"

namespace shoal {
namespace {

bool is_mapped(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  const auto want = reinterpret_cast<uintptr_t>(address);
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (want >= begin && want < end) return true;
  }
  return false;
}

TEST(Slab, CountsItsBytesInTheLedgerAndGivesThemBack) {
  auto ledger = std::make_shared<Ledger>();
  const std::byte* address = nullptr;
  {
    const auto slab = Slab::create(12345, Slab::Backing::anonymous, ledger, MemoryKind::states);
    address = slab->data();
    EXPECT_EQ(ledger->line(MemoryKind::states).nbytes, 12345u);
    EXPECT_TRUE(is_mapped(address));
    EXPECT_EQ(slab->data()[12344], std::byte{0});
    EXPECT_TRUE(slab->contains(slab->data() + 12344));
    EXPECT_FALSE(slab->contains(slab->data() + 12345));
  }
  EXPECT_EQ(ledger->line(MemoryKind::states).nbytes, 0u);
  EXPECT_EQ(ledger->line(MemoryKind::states).peak, 12345u);
  EXPECT_FALSE(is_mapped(address));
}

TEST(Slab, ShareableMemoryIsSeenThroughItsDescriptor) {
  const auto slab = Slab::create(4096, Slab::Backing::shareable, std::make_shared<Ledger>(), MemoryKind::weights);
  ASSERT_GE(slab->fd(), 0);
  void* other = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, slab->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  slab->data()[7] = std::byte{42};
  EXPECT_EQ(static_cast<std::byte*>(other)[7], std::byte{42});
  munmap(other, 4096);
}

TEST(Slab, EmptySlabsAreFineAndIdsAreUnique) {
  auto ledger = std::make_shared<Ledger>();
  const auto a = Slab::create(0, Slab::Backing::shareable, ledger, MemoryKind::weights);
  const auto b = Slab::create(0, Slab::Backing::anonymous, ledger, MemoryKind::weights);
  EXPECT_EQ(a->data(), nullptr);
  EXPECT_NE(a->id(), b->id());
}

TEST(Slab, TooLargeASizeIsAnErrorThatSaysWhatFor) {
  try {
    Slab::create(size_t{1} << 62, Slab::Backing::anonymous, std::make_shared<Ledger>(), MemoryKind::states);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("for states failed"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace shoal
