#include "models/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

HfConfig config_of(const std::string& text) { return HfConfig(json::parse(text, "text"), "dir/config.json"); }

}  // namespace

TEST(HfConfig, ReadsValuesAndDefaults) {
  const HfConfig config = config_of(R"({"n": 3, "eps": 1e-5, "tied": true, "act": "silu", "none": null})");
  EXPECT_EQ(config.count("n"), 3);
  EXPECT_EQ(config.count("m", 7), 7);
  EXPECT_EQ(config.count("none", 7), 7);
  EXPECT_EQ(config.number("eps"), 1e-5);
  EXPECT_EQ(config.number("n"), 3.0);
  EXPECT_TRUE(config.flag("tied", false));
  EXPECT_TRUE(config.flag("other", true));
  EXPECT_EQ(config.text("act", "gelu"), "silu");
  EXPECT_EQ(config.probability("p"), 0.0);
  EXPECT_EQ(config.find("none"), nullptr);
}

// A thousand million layers are a thousand million lists before anything is said.
TEST(HfConfig, LayersAreNoMoreThanAnyModelHas) {
  const HfConfig config = config_of(R"({"none": 0, "most": 65536, "more": 65537, "slip": 1000000000})");
  EXPECT_EQ(config.layers("most"), 65536);
  EXPECT_EQ(config.layers("gone", 12), 12);
  EXPECT_EQ(message_of([&] { config.layers("none"); }), "[dir/config.json none] 0 is not a count of 1 or more.");
  for (const char* key : {"more", "slip"}) {
    EXPECT_THAT(message_of([&] { config.layers(key); }), HasSubstr("is not a count of layers, at most 65536."));
  }
}

TEST(HfConfig, NamesTheFileTheKeyAndTheValue) {
  const HfConfig config = config_of(R"({"n": 0, "x": "y", "p": 1.0, "s": {"k": []}})");
  EXPECT_EQ(message_of([&] { config.count("n"); }), "[dir/config.json n] 0 is not a count of 1 or more.");
  EXPECT_EQ(message_of([&] { config.count("gone"); }),
            "[dir/config.json gone] is not there. Give it: a count of 1 or more.");
  EXPECT_THAT(message_of([&] { config.number("x"); }), HasSubstr("\"y\" is not a number"));
  EXPECT_THAT(message_of([&] { config.flag("x", true); }), HasSubstr("true or false"));
  EXPECT_THAT(message_of([&] { config.text("n", ""); }), HasSubstr("a text"));
  EXPECT_THAT(message_of([&] { config.probability("p"); }), HasSubstr("probability"));
  EXPECT_THAT(message_of([&] { config.section("n"); }), HasSubstr("an object"));
  EXPECT_THAT(message_of([&] { config.section("s").number("k"); }), HasSubstr("[dir/config.json s.k]"));
  EXPECT_EQ(message_of([&] { config.refuse("x", "Use z."); }), "[dir/config.json x] \"y\" is not supported. Use z.");
  EXPECT_THAT(message_of([&] { config_of("[]"); }), HasSubstr("not a JSON object"));
}

TEST(ExportHfConfig, KeepsWhatItDoesNotKnowAndDropsTheDtype) {
  const json::Value exported = export_hf_config(
      json::parse(R"({"dtype": "bfloat16", "torch_dtype": "bfloat16", "bos_token_id": 1, "architectures": ["X"]})", ""),
      "LlamaForCausalLM");
  EXPECT_EQ(json::write(exported), R"({"bos_token_id": 1, "architectures": ["LlamaForCausalLM"]})");
}

}  // namespace shoal::models
