#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(ActivationCheckpointing, IsAcceptedWhenEverythingIsOff) {
  EXPECT_EQ(mistakes_of(R"("activation_checkpointing": {"partition_activations": false, "cpu_checkpointing": false,
    "contiguous_memory_optimization": false, "number_checkpoints": null, "profile": false})"),
            "");
}

TEST(ActivationCheckpointing, RefinementsThatAreMissingAreNoticed) {
  EXPECT_EQ(parse_members(R"("activation_checkpointing": {"profile": true, "number_checkpoints": 4,
    "partition_activations": true, "contiguous_memory_optimization": true})")
                .notices.size(),
            4u);
}

TEST(ActivationCheckpointing, InputsOfRecomputedRegionsMayBeOnTheHost) {
  EXPECT_FALSE(Config::from_text(R"({"train_batch_size": 1})").inputs_on_host);
  EXPECT_TRUE(Config::from_text(R"({"train_batch_size": 1, "activation_checkpointing": {"cpu_checkpointing": true}})")
                  .inputs_on_host);
}

}  // namespace shoal::config
