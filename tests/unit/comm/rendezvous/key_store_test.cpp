#include "comm/rendezvous/key_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "unit/comm/memory_store.h"

namespace shoal {
namespace {

using namespace std::chrono_literals;
Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

TEST(KeyStore, WaitsForAKeyThatComesLater) {
  testing::MemoryStore store;
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    store.set("key", "value");
  });
  EXPECT_EQ(wait_for_key(store, "key", in(10s)), "value");
  later.join();
}

TEST(KeyStore, GivesUpAtTheDeadline) {
  testing::MemoryStore store;
  EXPECT_FALSE(wait_for_key(store, "key", in(5ms)));
}

TEST(KeyStore, LooksAroundWhileItWaits) {
  testing::MemoryStore store;
  const auto look = [] { throw Error("test", "a peer died"); };
  EXPECT_THROW(wait_for_key(store, "key", in(10s), look), Error);
}

}  // namespace
}  // namespace shoal
