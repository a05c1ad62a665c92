#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Foreign, EverySectionIsRefusedByNameWhileItIsOnAndNoticedWhileItIsOff) {
  int count = 0;
  for (const Section& section : table().sections()) {
    if (!section.is_foreign) continue;
    const bool counts = section.off_value.is_integer();
    Value on = counts ? Value(2) : Value(true);
    const std::string name = section.off_switch.empty() ? "anything" : section.off_switch;
    const std::string refused = mistakes_of("\"" + section.path + "\": {\"" + name + "\": " + json::write(on) + "}");
    EXPECT_TRUE(refused.starts_with("[line 1, " + section.path + "] not supported yet. Remove the section")) << refused;
    const std::string off =
        section.off_switch.empty() ? "{}" : "{\"" + name + "\": " + json::write(section.off_value) + "}";
    for (const std::string& object : {off, std::string("{}")}) {
      EXPECT_EQ(
          parse_members("\"" + section.path + "\": " + object).notices,
          std::vector<std::string>{section.path + " has no effect: it is switched off, and Shoal does not have it."});
    }
    ++count;
  }
  EXPECT_GE(count, 24);
}

TEST(Foreign, KnownKeysOfASectionThatIsOffAreAccepted) {
  EXPECT_EQ(
      mistakes_of(R"("flops_profiler": {"enabled": false, "profile_step": 1, "detailed": true, "output_file": null},
    "elasticity": {"enabled": false, "micro_batch_sizes": [2, 4]}, "amp": {"enabled": false, "opt_level": "O1", "x": 1})"),
      "");
}

}  // namespace shoal::config
