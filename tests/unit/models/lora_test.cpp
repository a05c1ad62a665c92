#include "models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;

namespace {

std::string problem_in(const std::string& text) {
  return message_of([&] { parse_lora(text); });
}

// The modules of two blocks that a spec means, as a dense model declares them.
std::vector<std::string> chosen(LoraTargets& targets) {
  std::vector<std::string> modules;
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj"}) {
      const bool makes_qv = std::string(name).ends_with("q_proj") || std::string(name).ends_with("v_proj");
      if (targets.has(std::string(layer) + name, makes_qv)) modules.push_back(std::string(layer) + name);
    }
  }
  return modules;
}

}  // namespace

TEST(ParseLora, ReadsWhatIsGiven) {
  EXPECT_EQ(parse_lora("r=16,alpha=32"), (LoraSpec{.rank = 16, .alpha = 32}));
  EXPECT_EQ(parse_lora("dropout=0.05,targets=q_proj+mlp.up_proj,alpha=0.5,r=1"),
            (LoraSpec{.rank = 1, .alpha = 0.5, .dropout = 0.05, .targets = {"q_proj", "mlp.up_proj"}}));
  EXPECT_EQ(parse_lora("r=16,alpha=32").scale(), 2);
}

TEST(ParseLora, TheTextOfASpecReadsBackWhateverOrderItHad) {
  EXPECT_EQ(to_text(parse_lora("alpha=32,targets=v_proj+q_proj,r=16,dropout=0.1")),
            "r=16,alpha=32,targets=q_proj+v_proj,dropout=0.1");
  EXPECT_EQ(to_text(parse_lora("r=3,alpha=0.3,dropout=0")), "r=3,alpha=0.3");
}

TEST(ParseLora, SaysWhatIsWrong) {
  EXPECT_THAT(problem_in(""), StartsWith("[--lora] \"\" is none of its keys."));
  EXPECT_THAT(problem_in("r=16"), StartsWith("[--lora] has no alpha. Give r and alpha, as in r=16,alpha=32"));
  EXPECT_THAT(problem_in("alpha=16"), StartsWith("[--lora] has no r."));
  EXPECT_THAT(problem_in("r=0,alpha=1"),
              StartsWith("[--lora] r=0 is no rank of an adapter. Give a whole number from 1"));
  for (const char* rank : {"-1", "1.5", "", "16x", "65537", "99999999999999999999"}) {
    EXPECT_THAT(problem_in(std::string("alpha=1,r=") + rank), HasSubstr("is no rank of an adapter")) << rank;
  }
  for (const char* alpha : {"0", "-1", "nan", "inf", "x"}) {
    EXPECT_THAT(problem_in(std::string("r=1,alpha=") + alpha), HasSubstr("does not scale adapters")) << alpha;
  }
  for (const char* dropout : {"1", "-0.1", "nan", ""}) {
    EXPECT_THAT(problem_in(std::string("r=1,alpha=1,dropout=") + dropout), HasSubstr("is no share")) << dropout;
  }
  EXPECT_THAT(problem_in("r=1,alpha=1,target=q_proj"),
              HasSubstr("\"target\" is none of its keys. Did you mean targets?"));
  EXPECT_THAT(problem_in("r=1,r=2,alpha=1"), HasSubstr("gives r twice"));
  EXPECT_THAT(problem_in("r,alpha=1"), HasSubstr("r has no value. Write r="));
  EXPECT_THAT(problem_in("r=1,alpha=1,targets=q_proj+q_proj"), HasSubstr("names q_proj twice"));
  EXPECT_THAT(problem_in("r=1,alpha=1,targets=q_proj+"), HasSubstr("has an empty name"));
  EXPECT_THAT(problem_in("r=1,alpha=1,targets=all-linear+q_proj"), HasSubstr("names all-linear beside others"));
}

TEST(LoraTargets, MeanWhatPeftMeans) {
  const auto of = [](std::vector<std::string> names) {
    LoraTargets targets({.rank = 1, .alpha = 1, .targets = std::move(names)});
    const std::vector<std::string> modules = chosen(targets);
    return std::pair(modules, targets.resolved("m").targets);
  };
  EXPECT_THAT(of({"o_proj"}).first, ElementsAre("model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.o_proj"));
  EXPECT_THAT(
      of({"mlp.up_proj", "layers.1.self_attn.k_proj"}).first,
      ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.k_proj", "model.layers.1.mlp.up_proj"));
  EXPECT_EQ(of({}).first.size(), 4u);
  EXPECT_THAT(of({}).second, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(of({"all-linear"}).first.size(), 10u);
  EXPECT_THAT(of({"all-linear"}).second, ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "up_proj"));
}

TEST(LoraTargets, ThatTheModelDoesNotHaveAreRefusedWithThoseItHas) {
  const auto problem = [](std::vector<std::string> names) {
    LoraTargets targets({.rank = 1, .alpha = 1, .targets = std::move(names)});
    chosen(targets);
    return message_of([&] { targets.resolved("small"); });
  };
  EXPECT_EQ(problem({"q_proj", "q_prj"}),
            "[--lora] targets: small has no matrix q_prj that can have adapters. Did you mean q_proj? It has q_proj, "
            "k_proj, v_proj, o_proj, up_proj; all-linear means all of them.");
  EXPECT_THAT(problem({"lm_head"}), HasSubstr("small has no matrix lm_head"));
  EXPECT_THAT(problem({"proj"}), HasSubstr("has no matrix proj"));  // the end of a name, but not after a dot
  LoraTargets nothing({.rank = 1, .alpha = 1});
  EXPECT_THAT(message_of([&] { nothing.resolved("odd"); }),
              HasSubstr("odd has no matrices that adapters are made for"));
}

TEST(LoraTargets, ThatMeanARefusedMatrixAreRefusedWithTheOthers) {
  const auto problem = [](std::vector<std::string> names) {
    LoraTargets targets({.rank = 1, .alpha = 1, .targets = std::move(names)});
    chosen(targets);
    targets.refuse("model.layers.2.mlp.experts.0.up_proj");
    targets.refuse("model.layers.2.mlp.experts.1.up_proj");
    return message_of([&] { targets.resolved("small"); });
  };
  EXPECT_EQ(problem({"q_proj", "up_proj"}),
            "[--lora] targets: up_proj means model.layers.2.mlp.experts.0.up_proj of small, and the matrices of a "
            "mixture of experts cannot have adapters. Name others: q_proj, k_proj, v_proj, o_proj.");
  EXPECT_THAT(problem({"all-linear"}), HasSubstr("targets: all-linear means model.layers.2.mlp.experts.0.up_proj"));
  EXPECT_THAT(problem({"experts.1.up_proj"}), HasSubstr("means model.layers.2.mlp.experts.1.up_proj"));
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({"q_proj", "layers.1.mlp.up_proj"}), "");
}

}  // namespace shoal::models
