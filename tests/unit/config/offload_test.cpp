#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Offload, NoneIsAccepted) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"offload_param": null, "offload_optimizer": {"device": "none"}})"),
            "");
}

TEST(Offload, ParametersNeedStageThree) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}})"),
            "[line 1, zero_optimization.offload_param.device] \"cpu\" needs parameters that are sharded, and "
            "zero_optimization.stage is 2. Use stage 3, or remove offload_param.");
}

TEST(Offload, DevicesAreNotSupportedYet) {
  for (const char* device : {"cpu", "nvme"}) {
    const std::string section =
        R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": ")" + std::string(device) + "\"}}";
    EXPECT_EQ(mistakes_of(section),
              "[line 1, zero_optimization.offload_optimizer.device] \"" + std::string(device) +
                  "\" is not supported yet: Shoal cannot offload. Remove the section or set its device to "
                  "\"none\".");
  }
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"offload_optimizer": {"device": "gpu"}})"),
            "[line 1, zero_optimization.offload_optimizer.device] \"gpu\" is not known. Did you mean \"cpu\"? Give one "
            "of none, cpu, "
            "nvme.");
}

TEST(Offload, OtherKeysAreTypedWhileNothingIsOffloaded) {
  EXPECT_NE(mistakes_of(R"("zero_optimization": {"offload_optimizer": {"ratio": 1.5}})"), "");
  EXPECT_NE(mistakes_of(R"("zero_optimization": {"offload_param": {"buffer_count": 0}})"), "");
}

}  // namespace shoal::config
