#include "config/overrides.h"

#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

static Config with(const std::vector<std::string>& overrides, std::string_view members = "") {
  return Config::from_text(with_batch(members), {}, "config", overrides);
}

TEST(Overrides, ReplaceWhatTheFileSays) {
  EXPECT_EQ(with({"zero_optimization.stage=3"}, R"("zero_optimization": {"stage": 1})").zero.stage, 3);
  EXPECT_EQ(with({"zero_optimization.stage=1", "zero_optimization.stage=2"}).zero.stage, 2);
}

TEST(Overrides, ReplaceEverySpelling) {
  const char* members = R"("zero_optimization": {"stage3_prefetch_bucket_size": 5}, "bfloat16": {"enabled": false})";
  const Config config = with({"zero_optimization.prefetch_bucket_size=7", "bf16.enabled=true"}, members);
  EXPECT_EQ(config.zero.prefetch_bucket_size, 7);
  EXPECT_EQ(config.precision, Precision::bf16);
}

TEST(Overrides, ValuesAreJsonOrElseText) {
  const Config config = with({"optimizer.type=lion", "optimizer.params.betas=[0.5, 0.75]", "shoal.transport=gloo",
                              "zero_optimization.reduce_bucket_size=1e6", R"(fp16={"enabled": true})"});
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::lion);
  EXPECT_EQ(config.optimizer.beta2, 0.75);
  EXPECT_EQ(config.shoal.transport, Transport::gloo);
  EXPECT_EQ(config.zero.reduce_bucket_size, 1'000'000);
  EXPECT_EQ(config.precision, Precision::fp16);
}

TEST(Overrides, MistakesNameTheOverride) {
  const std::vector<std::string> overrides = {
      "zero_optimization.stage=4", "zero_optimization.stge=3", "stage", "=1", "a..b=1",
      "steps_per_print.x=1",       "gradient_clipping="};
  EXPECT_EQ(
      mistakes_of_text(with_batch(R"("steps_per_print": 10)"), {}, overrides),
      "[config] 7 mistakes:\n"
      "  [override zero_optimization.stage=4, zero_optimization.stage] 4 is not a ZeRO stage. Use 0, 1, 2 or 3.\n"
      "  [override zero_optimization.stge=3, zero_optimization.stge] unknown key. Did you mean \"stage\"?\n"
      "  [override stage] not of the form path=value. Write it like zero_optimization.stage=3.\n"
      "  [override =1] not of the form path=value. Write it like zero_optimization.stage=3.\n"
      "  [override a..b=1] not of the form path=value. Write it like zero_optimization.stage=3.\n"
      "  [override steps_per_print.x=1] \"steps_per_print\" is 10 in the config, not an object, so nothing inside it "
      "can be set. Correct it there.\n"
      "  [override gradient_clipping=, gradient_clipping] \"\" has the wrong type. Give a number of at least 0.");
}

}  // namespace shoal::config
