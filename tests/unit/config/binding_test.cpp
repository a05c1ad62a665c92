#include "config/binding.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace shoal::config {

TEST(Binding, StoresAndLoadsTheSameField) {
  const Binding stage = bound_to([](auto& c) -> auto& { return c.zero.stage; });
  Config config;
  stage.store(config, 3);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(stage.load(config), Value(3));
}

TEST(Binding, DtypesTravelByNameAndNullIsNone) {
  const Binding dtype = bound_to([](auto& c) -> auto& { return c.communication_dtype; });
  Config config;
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    dtype.store(config, name);
    EXPECT_EQ(dtype.load(config), Value(name));
  }
  dtype.store(config, Value());
  EXPECT_EQ(config.communication_dtype, std::nullopt);
  EXPECT_EQ(dtype.load(config), Value());
}

TEST(Binding, ChoicesFollowTheOrderOfTheEnum) {
  const Binding transport =
      bound_to_choice([](auto& c) -> auto& { return c.shoal.transport; }, {"auto", "shm", "gloo"});
  Config config;
  transport.store(config, "gloo");
  EXPECT_EQ(config.shoal.transport, Transport::gloo);
  EXPECT_EQ(transport.load(config), Value("gloo"));
}

TEST(Binding, ANumberThatDoesNotFitIsABrokenPromise) {
  const Binding stage = bound_to([](auto& c) -> auto& { return c.zero.stage; });
  Config config;
  EXPECT_THROW(stage.store(config, int64_t{1} << 40), BrokenPromise);
}

}  // namespace shoal::config
