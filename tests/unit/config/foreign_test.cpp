#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Foreign, EverySectionIsRefusedWithAnAlternativeOrNoticedWhileItIsOnAndNoticedWhileItIsOff) {
  int refused = 0, harmless = 0;
  for (const Section& section : table().sections()) {
    if (!section.is_foreign) continue;
    const std::string quoted = "\"" + section.path + "\": ";
    const std::string name = section.off_switch.empty() ? "anything" : section.off_switch;
    const Value on = section.off_value.is_integer() ? Value(2) : Value(true);
    const std::string text = quoted + "{\"" + name + "\": " + json::write(on) + "}";
    EXPECT_NE(section.harmless.empty(), section.instead.empty()) << section.path;
    if (section.harmless.empty()) {
      const std::string message = mistakes_of(text);
      const std::string words =
          "[line 1, " + section.path + "] not supported yet. " + section.instead + " Remove the section";
      EXPECT_TRUE(message.starts_with(words)) << message;
      EXPECT_TRUE(section.instead.ends_with(".")) << section.instead;
      ++refused;
    } else {
      EXPECT_EQ(parse_members(text).notices,
                std::vector<std::string>{section.path + " has no effect: " + section.harmless + "."});
      ++harmless;
    }
    const std::string off =
        section.off_switch.empty() ? "{}" : "{\"" + name + "\": " + json::write(section.off_value) + "}";
    for (const std::string& object : {off, std::string("{}"), std::string("null"), std::string("false")}) {
      EXPECT_EQ(
          parse_members(quoted + object).notices,
          std::vector<std::string>{section.path + " has no effect: it is switched off, and Shoal does not have it."});
    }
  }
  EXPECT_GE(refused, 18);
  EXPECT_GE(harmless, 5);
}

TEST(Foreign, SwitchesMayBeNumbersOrStandDeeper) {
  EXPECT_EQ(mistakes_of(R"("elasticity": {"enabled": 0}, "tensor_parallel": {"autotp_size": 1}, "compression_training":
    {"weight_quantization": {"shared_parameters": {"enabled": false}, "different_groups": {}}, "x": {"enabled": 0}})"),
            "");
  EXPECT_NE(mistakes_of(R"("elasticity": {"enabled": 1})"), "");
  EXPECT_NE(mistakes_of(R"("compression_training": {"row_pruning": {"shared_parameters": {"enabled": true}}})"), "");
  EXPECT_NE(mistakes_of(R"("quantize_training": {"quantize_groups": 16})"), "") << "on without a switch";
  EXPECT_EQ(mistakes_of(R"("quantize_training": {"enabled": false, "quantize_groups": 16})"), "");
  EXPECT_NE(mistakes_of(R"("sparse_attention": {"mode": "fixed"})"), "");
}

TEST(Foreign, KnownKeysOfASectionThatIsOffAreAccepted) {
  EXPECT_EQ(
      mistakes_of(R"("flops_profiler": {"enabled": false, "profile_step": 1, "detailed": true, "output_file": null},
    "elasticity": {"enabled": false, "micro_batch_sizes": [2, 4]}, "amp": {"enabled": false, "opt_level": "O1", "x": 1})"),
      "");
}

}  // namespace shoal::config
