#include "train/banner.h"

#include <gtest/gtest.h>

namespace shoal::train {
namespace {

BannerFacts facts_of(int stage, int world, const std::string& more = "") {
  BannerFacts facts;
  facts.model = "toy: 2,097,152 parameters";
  facts.weights = "made with seed 1: toy comes without any";
  facts.data = "synthetic: 100 tokens";
  facts.config =
      Config::from_text(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2)" + more + "}",
                        {.world_size = world}, "config", {"zero_optimization.stage=" + std::to_string(stage)});
  const DType dtype = facts.config.precision == Precision::bf16 ? DType::bf16 : DType::f32;
  std::vector<UnitSpec> units;
  for (const char* name : {"a", "b"}) {
    UnitSpec unit;
    unit.name = name;
    unit.params.push_back({.name = std::string(name) + ".w", .shape = {1024, 1024}, .dtype = dtype});
    units.push_back(unit);
  }
  facts.layout = lay_out(units, {.mesh = world});
  facts.transport = "shared memory";
  facts.same_bits = "same bits at 1, 2, 4 ranks";
  return facts;
}

TEST(Banner, SaysWhatLoraTrains) {
  models::ModelInfo info;
  info.name = "small";
  info.numel = 1'048'576 + 2048;
  EXPECT_EQ(model_text(info), "small: 1,050,624 parameters");
  info.lora =
      models::LoraInfo{.spec = models::parse_lora("r=2,alpha=4,targets=q_proj"), .modules = {"a", "b"}, .numel = 2048};
  EXPECT_EQ(model_text(info),
            "small: 1,050,624 parameters\n"
            "lora       r=2,alpha=4,targets=q_proj: 2,048 parameters in 2 adapters are trained, 0.195 %");
}

TEST(Banner, SaysWhereEveryByteLivesAndWhatAStepMoves) {
  EXPECT_EQ(banner(facts_of(3, 2, R"(, "bf16": {"enabled": true})")),
            "model      toy: 2,097,152 parameters\n"
            "weights    made with seed 1: toy comes without any\n"
            "data       synthetic: 100 tokens\n"
            "run        stage 3, bf16, 2 ranks over shared memory, 1 thread each\n"
            "exactness  same bits at 1, 2, 4 ranks\n"
            "batch      16 samples a step = 4 (micro-batch) x 2 (micro-steps) x 2 (ranks)\n"
            "a step     each rank sends and receives 12 MiB: 8 MiB of weights gathered, 4 MiB of gradients\n"
            "host memory, each rank       stage 3    at stage 0\n"
            "  weights                      2 MiB         4 MiB\n"
            "  gradients                    4 MiB         8 MiB\n"
            "  master                       2 MiB         4 MiB\n"
            "  moments                      8 MiB        16 MiB\n"
            "  gathered units               4 MiB           0 B\n"
            "  gradients on the way         4 MiB           0 B\n"
            "  total                       24 MiB        32 MiB\n");
}

TEST(Banner, SaysHowProductsAreMadeWhereTheCpuLacksThePrecision) {
  BannerFacts facts = facts_of(0, 1, R"(, "bf16": {"enabled": true})");
  facts.products = "bf16: products in fp32, this processor has no bf16 arithmetic";
  EXPECT_NE(banner(facts).find("run        stage 0, bf16, one rank, 1 thread each\n"
                               "exactness  same bits at 1, 2, 4 ranks\n"
                               "numbers    bf16: products in fp32, this processor has no bf16 arithmetic\n"
                               "batch      "),
            std::string::npos)
      << banner(facts);
}

TEST(Banner, SaysWhetherWeightsAreReadOrMade) {
  models::ModelInfo info;
  info.origin = "gpt2/config.json";
  EXPECT_EQ(weights_text(info, 7, ""), "made with seed 7: gpt2/config.json comes without any");
  EXPECT_EQ(weights_text(info, 7, "run/step-00000001"), "of the checkpoint run/step-00000001");
  info.weights_from = "gpt2";
  EXPECT_EQ(weights_text(info, 7, ""), "read from gpt2");
}

TEST(Banner, SaysWhatLivesOffTheDevice) {
  const std::string text =
      banner(facts_of(2, 2, R"(, "zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/d"}})"));
  EXPECT_NE(text.find("  optimizer states               0 B        16 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  buffers of the disk          8 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  total                       28 MiB        32 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  states, disk tier            8 MiB\n"), std::string::npos) << text;
}

TEST(Banner, SaysWhatIsRecomputedAndWhichActivationsAreOnTheHost) {
  BannerFacts facts = facts_of(0, 1);
  facts.recompute = "full";
  facts.host_activations = size_t{7} << 20;
  facts.on_gpu = true;
  const std::string text = banner(facts);
  EXPECT_NE(text.find("one rank, 1 thread each, recompute full\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  activations on host          7 MiB\n"), std::string::npos) << text;
}

TEST(Banner, SaysWhatIsQuantizedAndThatItIsNotTheExactRun) {
  const std::string text =
      banner(facts_of(3, 2, R"(, "bf16": {"enabled": true}, "zero_optimization": {"zero_quantized_weights": true})"));
  EXPECT_NE(
      text.find("quantized  weights are gathered as int8: repeatable, equal at every stage that has it, and not the "
                "bits of an exact run\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("4.125 MiB of weights gathered"), std::string::npos) << text;
  EXPECT_NE(text.find("  int8 copy"), std::string::npos) << text;
}

TEST(Banner, OneRankMovesNothing) {
  EXPECT_EQ(banner(facts_of(0, 1)).find("sends"), std::string::npos);
  EXPECT_NE(banner(facts_of(0, 1)).find("stage 0, fp32, one rank, 1 thread each"), std::string::npos);
  EXPECT_EQ(banner(facts_of(0, 1)).find("master"), std::string::npos) << "fp32 weights are their own masters";
}

}  // namespace
}  // namespace shoal::train
