// The Gloo backend as made through the stubs: it must connect by address and by interface.
#include "comm/host/gloo_factory.h"

#include <gtest/gtest.h>

#include "comm/host/gloo_link.h"

namespace shoal {
namespace {

TEST(GlooFactory, MakesAWorldOfOneByAddressAndByInterface) {
  auto store = make_hash_store();
  EXPECT_TRUE(GlooLink::connect(*store, "address", {0, 1, kDefaultTimeout, "127.0.0.1", ""}));
  EXPECT_TRUE(GlooLink::connect(*store, "interface", {0, 1, kDefaultTimeout, "", "lo"}));
}

TEST(GlooFactory, AnInterfaceThatIsNotThereIsAnError) {
  auto store = make_hash_store();
  EXPECT_ANY_THROW(GlooLink::connect(*store, "x", {0, 1, kDefaultTimeout, "", "nosuch0"}));
}

}  // namespace
}  // namespace shoal
