#include "comm/rendezvous/local_address.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(LocalAddress, OfLoopbackIsLoopback) { EXPECT_EQ(local_address_towards("127.0.0.1"), "127.0.0.1"); }
TEST(LocalAddress, OfAHostThatCannotBeIsEmpty) { EXPECT_EQ(local_address_towards("no such host"), ""); }

TEST(LocalAddress, InterfacesAreFoundByNameAndByAddress) {
  const std::vector<Interface> found = interfaces();
  const std::string loopback = interface_of("127.0.0.1", found);
  EXPECT_EQ(loopback, "lo");
  EXPECT_EQ(address_of("lo", found), "127.0.0.1");
  EXPECT_EQ(interface_of("192.0.2.1", found), "");
  EXPECT_EQ(address_of("no such one", found), "");
  EXPECT_EQ(to_text(std::vector<Interface>{{"a", "1"}, {"b", "2"}}), "a (1), b (2)");
}

}  // namespace
}  // namespace shoal
