#include "models/dense/rope_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

HfConfig rotary_config(const std::string& type, const std::string& more) {
  return HfConfig(json::parse(R"({"model_type": ")" + type +
                                  R"(", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,)"
                                  R"( "num_hidden_layers": 4, "num_attention_heads": 8, "pad_token_id": null,)"
                                  R"( "max_position_embeddings": 4096)" +
                                  more + "}",
                              "config.json"),
                  "config.json");
}

DenseConfig rotary(const std::string& type, const std::string& more) {
  return read_dense_config(rotary_config(type, more));
}

std::string rotary_problem(const std::string& type, const std::string& more) {
  return message_of([&] { rotary(type, more); });
}

}  // namespace

TEST(RopeConfig, ReadsYarnInBothForms) {
  for (const char* more : {R"(, "rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,)"
                           R"( "original_max_position_embeddings": 1024})",
                           R"(, "rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,)"
                           R"( "original_max_position_embeddings": 1024})"}) {
    const RopeConfig rope = rotary("llama", more).rope;
    EXPECT_EQ(rope.theta, 1e6);
    ASSERT_TRUE(rope.yarn) << more;
    EXPECT_EQ(rope.yarn->original_max_positions, 1024);
    EXPECT_DOUBLE_EQ(rope.yarn->attention_factor, 0.1 * std::log(4.0) + 1);
  }
}

TEST(RopeConfig, TheExportReadsBackTheSameInBothForms) {
  for (const char* more : {R"(, "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16.0})",
                           R"(, "rope_scaling": {"rope_type": "linear", "factor": 8.0})",
                           R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 8.0})"}) {
    const HfConfig config = rotary_config("llama", more);
    const DenseConfig read = read_dense_config(config);
    const json::Value exported = json::parse(export_dense_config(config, read), "exported");
    for (const char* dropped : {"rope_parameters", "rope_scaling"}) {
      json::Value one_form = exported;
      ASSERT_TRUE(one_form.erase(dropped)) << more;
      const DenseConfig again = read_dense_config(HfConfig(one_form, "exported"));
      EXPECT_EQ(again.max_positions, read.max_positions);
      EXPECT_EQ(rope_frequencies(again.rope, 8, 8192), rope_frequencies(read.rope, 8, 8192)) << more;
      EXPECT_EQ(rope_attention_factor(again.rope), rope_attention_factor(read.rope)) << more;
    }
  }
}

TEST(RopeConfig, APartOfAHeadTurnsWhereAFamilyCarriesItOut) {
  EXPECT_EQ(rotary("phi3", R"(, "partial_rotary_factor": 0.75)").rope.partial, 0.75);
  EXPECT_EQ(rotary("gpt_neox", "").rope.partial, 0.25);
  EXPECT_EQ(rotary("gpt_neox", R"(, "rotary_pct": 1.0, "rotary_emb_base": 500)").rope.partial, 1);
  EXPECT_EQ(rotary("gpt_neox", R"(, "rotary_emb_base": 500)").rope.theta, 500);
  EXPECT_EQ(rotary("gpt_neox", R"(, "rope_parameters": {"partial_rotary_factor": 0.5})").rope.partial, 0.5);
  EXPECT_THAT(rotary_problem("gpt_neox", R"(, "rotary_pct": 0.4)"), HasSubstr("rotary_pct] 0.4"));
  EXPECT_THAT(rotary_problem("phi3", R"(, "partial_rotary_factor": 1.5)"), HasSubstr("partial_rotary_factor] 1.5"));
  EXPECT_THAT(rotary_problem("qwen2", R"(, "num_key_value_heads": 8, "partial_rotary_factor": 0.5)"),
              HasSubstr("Use 1."));
}

TEST(RopeConfig, APartOf1IsExportedSinceNeoxHasAnotherDefault) {
  const HfConfig config = rotary_config("gpt_neox", R"(, "rotary_pct": 1.0)");
  const json::Value exported = json::parse(export_dense_config(config, read_dense_config(config)), "exported");
  EXPECT_EQ(exported.find("rope_parameters")->find("partial_rotary_factor")->as_number(), 1);
}

TEST(RopeConfig, Gemma3AndOlmo3HaveTwo) {
  const DenseConfig old = rotary("gemma3_text", R"(, "rope_theta": 2e6, "rope_local_base_freq": 5e3,)"
                                                R"( "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  EXPECT_EQ(old.rope.theta, 2e6);
  EXPECT_EQ(old.rope.linear_factor, 8);
  EXPECT_EQ(old.local_rope.theta, 5e3);
  EXPECT_EQ(old.local_rope.linear_factor, 1);
  const DenseConfig now = rotary("gemma3_text", R"(, "rope_parameters": {"full_attention": {"rope_theta": 3e6}})");
  EXPECT_EQ(now.rope.theta, 3e6);
  EXPECT_EQ(now.local_rope.theta, 1e4);
  EXPECT_EQ(rotary("gemma3_text", "").rope.theta, 1e6);
  // The old key is of the layers that see all.
  EXPECT_EQ(rotary("olmo3", R"(, "rope_theta": 7e5)").local_rope.theta, 5e5);
  EXPECT_THAT(rotary_problem("olmo3", R"(, "rope_parameters": {"rope_theta": 1.0})"), HasSubstr("full_attention"));
}

TEST(RopeConfig, DynamicScalingLengthensTheModel) {
  const DenseConfig read = rotary("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 2.5})");
  EXPECT_EQ(read.max_positions, 10240);
  EXPECT_EQ(read.rope.dynamic->max_positions, 4096);
}

TEST(RopeConfig, LongRopeTakesTheOriginalLengthBesideTheSection) {
  const std::string lists =
      R"(, "rope_scaling": {"type": "su", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4]})";
  const DenseConfig read = rotary("phi3", R"(, "original_max_position_embeddings": 1024)" + lists);
  ASSERT_TRUE(read.rope.longrope);
  EXPECT_EQ(read.rope.longrope->original_max_positions, 1024);
  EXPECT_DOUBLE_EQ(read.rope.longrope->attention_factor, std::sqrt(1 + std::log(4.0) / std::log(1024.0)));
  EXPECT_THAT(rotary_problem("phi3", R"(, "rope_scaling": {"type": "longrope", "short_factor": [1]})"),
              AllOf(HasSubstr("short_factor] [1]"), HasSubstr("Give 4 numbers above 0")));
}

// In transformers the one beside the section wins, but for nested sections (families_test.py compares).
TEST(RopeConfig, TheOriginalLengthBesideTheSectionWinsWhereThereIsOne) {
  const std::string beside = R"(, "original_max_position_embeddings": 512)";
  const std::string yarn = R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})";
  const std::string llama3 = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,)"
                             R"( "high_freq_factor": 4.0, "original_max_position_embeddings": 1024})";
  EXPECT_EQ(rotary("llama", R"(, "rope_scaling": )" + yarn).rope.yarn->original_max_positions, 1024);
  EXPECT_EQ(rotary("llama", beside + R"(, "rope_scaling": )" + yarn).rope.yarn->original_max_positions, 512);
  EXPECT_EQ(rotary("llama", beside + R"(, "rope_parameters": )" + llama3).rope.scaling->original_max_positions, 512);
  for (const char* type : {"gemma3_text", "olmo3"}) {
    const std::string nested = R"(, "rope_parameters": {"full_attention": )" + yarn + "}";
    EXPECT_EQ(rotary(type, beside + nested).rope.yarn->original_max_positions, 1024) << type;
    EXPECT_EQ(rotary(type, beside + R"(, "rope_scaling": )" + llama3).rope.scaling->original_max_positions, 1024);
  }
}

TEST(RopeConfig, NumbersThatFitNoCountAreRefused) {
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 1e300})"),
              AllOf(HasSubstr("rope_scaling.factor]"), HasSubstr("Give a smaller one.")));
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 1e9})"),
              HasSubstr("Give a smaller one."));
  EXPECT_THAT(rotary_problem("phi3", R"(, "partial_rotary_factor": 1e300)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(rotary_problem("phi3", R"(, "partial_rotary_factor": -1e300)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_theta": 1.0, "rope_scaling": {"type": "yarn", "factor": 2.0})"),
              HasSubstr("rope_theta"));
}

TEST(RopeConfig, Gemma3AloneReadsItsOldKeys) {
  const std::string old = R"(, "rope_local_base_freq": 5e3, "sliding_window_pattern": 2, "sliding_window": 8)";
  const DenseConfig gemma = rotary("gemma3_text", old), olmo = rotary("olmo3", old);
  EXPECT_EQ(gemma.local_rope.theta, 5e3);
  EXPECT_EQ(gemma.each_layer[1].window, 0);
  EXPECT_EQ(olmo.local_rope.theta, 5e5);
  EXPECT_EQ(olmo.each_layer[1].window, 8);
  EXPECT_EQ(rotary("gemma3_text", R"(, "_sliding_window_pattern": 2, "sliding_window": 8)").each_layer[1].window, 8);
}

TEST(RopeConfig, LongRopeOfPhi3IsExportedAsTransformers4TakesIt) {
  const std::string lists = R"("short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4])";
  const auto exported = [](const std::string& more) {
    const HfConfig config = rotary_config("phi3", more);
    const DenseConfig read = read_dense_config(config);
    const json::Value written = json::parse(export_dense_config(config, read), "exported");
    const DenseConfig again = read_dense_config(HfConfig(written, "exported"));
    EXPECT_EQ(again.rope.longrope->original_max_positions, read.rope.longrope->original_max_positions);
    EXPECT_EQ(again.rope.longrope->attention_factor, read.rope.longrope->attention_factor);
    EXPECT_EQ(rope_frequencies(again.rope, 8, 8192), rope_frequencies(read.rope, 8, 8192));
    return written;
  };
  for (const std::string original : {R"(, "original_max_position_embeddings": 1024)", ""}) {
    const json::Value written = exported(original + R"(, "rope_parameters": {"rope_type": "longrope", )" + lists + "}");
    const json::Object& section = written.find("rope_scaling")->as_object();
    ASSERT_EQ(section.size(), 3u);
    EXPECT_EQ(section[0].key, "type");
    EXPECT_EQ(section[0].value, json::Value("longrope"));
    EXPECT_EQ(section[1].key, "short_factor");
    EXPECT_EQ(section[2].key, "long_factor");
    EXPECT_EQ(written.find("original_max_position_embeddings")->as_integer(), original.empty() ? 4096 : 1024);
  }
  // Another factor of attention has no place in that form.
  const json::Value own = exported(R"(, "rope_scaling": {"type": "longrope", "attention_factor": 1.5, )" + lists + "}");
  EXPECT_EQ(own.find("rope_scaling")->find("attention_factor")->as_number(), 1.5);
}

TEST(RopeConfig, OthersAreRefusedByName) {
  EXPECT_THAT(rotary_problem("gemma3_text", R"(, "rope_scaling": {"type": "linear", "factor": 8.0})"),
              AllOf(HasSubstr("rope_scaling.type] \"linear\""), HasSubstr("rope_type")));
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_parameters": {"full_attention": {"rope_theta": 1e6}})"),
              HasSubstr("full_attention"));
  EXPECT_THAT(rotary_problem("olmo3", R"(, "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}})"),
              HasSubstr("full_attention.partial_rotary_factor] 0.5"));
  EXPECT_THAT(rotary_problem("gemma3_text", R"(, "rope_scaling": {"rope_type": "linear", "factor": 8.0},)"
                                            R"( "rope_parameters": {"full_attention": {"factor": 4.0}})"),
              HasSubstr("rope_scaling"));

  EXPECT_THAT(rotary_problem("llama", R"(, "rope_scaling": {"type": "mrope", "factor": 2.0})"),
              AllOf(HasSubstr("rope_scaling.type] \"mrope\""), HasSubstr("\"yarn\"")));
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_parameters": {"rope_type": "linear"})"),
              HasSubstr("rope_parameters.factor"));
  EXPECT_THAT(rotary_problem("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 0.5})"),
              HasSubstr("factor] 0.5"));
  EXPECT_THAT(rotary_problem("olmo3", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false})"),
              HasSubstr("truncate] false"));
}

}  // namespace shoal::models
