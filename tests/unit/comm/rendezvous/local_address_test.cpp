#include "comm/rendezvous/local_address.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(LocalAddress, OfLoopbackIsLoopback) { EXPECT_EQ(local_address_towards("127.0.0.1"), "127.0.0.1"); }
TEST(LocalAddress, OfAHostThatCannotBeIsEmpty) { EXPECT_EQ(local_address_towards("no such host"), ""); }

}  // namespace
}  // namespace shoal
