#include <gtest/gtest.h>

#include "config/table.h"
#include "unit/config/samples.h"

namespace shoal::config {

static OptimizerConfig optimizer_of(const std::string& type) {
  return parse_members(R"("optimizer": {"type": ")" + type + "\"}").optimizer;
}

TEST(Optimizer, EachTypeHasItsDefaults) {
  EXPECT_EQ(optimizer_of("AdamW"), OptimizerConfig{});
  EXPECT_EQ(optimizer_of("sgd"), (OptimizerConfig{.kind = OptimizerKind::sgd}));
  EXPECT_EQ(optimizer_of("ADAGRAD"), (OptimizerConfig{.kind = OptimizerKind::adagrad, .lr = 1e-2, .eps = 1e-10}));
  EXPECT_EQ(optimizer_of("Lion"), (OptimizerConfig{.kind = OptimizerKind::lion}));
}

TEST(Optimizer, EveryOptimizerOfTheListIsATypeWithItsSettings) {
  for (const OptimizerRow& row : kOptimizers) {
    SCOPED_TRACE(row.name);
    const OptimizerKind found = optimizer_of(std::string(row.name)).kind;
    EXPECT_EQ(found, row.kind == OptimizerKind::adam ? OptimizerKind::adamw : row.kind);
    for (const OptimizerSetting& setting : row.settings) {
      if (setting.name.empty()) continue;
      const Key* key = table().key("optimizer.params." + std::string(setting.name));
      ASSERT_NE(key, nullptr) << "no key is called " << setting.name;
      const Value* fallback = key->fallback_of(std::string(row.name));
      ASSERT_NE(fallback, nullptr) << setting.name;
      EXPECT_EQ(*fallback, setting.fallback ? Value(*setting.fallback) : key->fallback);
    }
  }
}

TEST(Optimizer, AdamMeansAdamWUnlessToldOtherwise) {
  EXPECT_EQ(optimizer_of("Adam").kind, OptimizerKind::adamw);
  EXPECT_EQ(parse_members(R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false}})").optimizer.kind,
            OptimizerKind::adam);
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}})"),
            "[line 1, optimizer.params.adam_w_mode] false contradicts the type AdamW. Remove the key, or use the type "
            "\"Adam\".");
}

TEST(Optimizer, ParametersOfAnotherTypeAreRefused) {
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "AdamW", "params": {"momentum": 0.9}})"),
            "[line 1, optimizer.params.momentum] AdamW does not take this; SGD does. Remove the key.");
  std::string others;
  for (const OptimizerRow& row : kOptimizers) {
    if (row.takes("betas")) others += (others.empty() ? "" : ", ") + std::string(row.name);
  }
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}})"),
            "[line 1, optimizer.params.betas] SGD does not take this; " + others + " do. Remove the key.");
}

TEST(Optimizer, LambTakesDeepSpeedsSettings) {
  const Config config = parse_members(
      R"("optimizer": {"type": "lamb", "params": {"max_coeff": 0.3, "min_coeff": 0.02, "eps_inside_sqrt": true}})");
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::lamb);
  EXPECT_EQ(config.optimizer.max_coeff, 0.3);
  EXPECT_EQ(config.optimizer.min_coeff, 0.02);
  EXPECT_TRUE(config.optimizer.eps_inside_sqrt);
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "Lamb", "params": {"max_coeff": 0.3, "min_coeff": 0.4}})"),
            "[line 1, optimizer.params.min_coeff] 0.4 is above max_coeff, 0.3. Give a smaller min_coeff.");
}

TEST(Optimizer, LambIsRefusedWhereItCannotPassTwice) {
  const auto mistake = [](const std::string& more) { return mistakes_of(R"("optimizer": {"type": "Lamb"}, )" + more); };
  EXPECT_EQ(mistake(R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})"),
            "[line 1, optimizer.type] Lamb passes over each parameter twice, which "
            "zero_optimization.offload_optimizer.device cpu does not allow yet. Set "
            "zero_optimization.offload_optimizer.device to \"none\".");
  EXPECT_NE(mistake(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})"), "");
  EXPECT_NE(mistake(R"("shoal": {"defer_update": "on"})"), "");
  EXPECT_NE(mistake(R"("shoal": {"placement": "auto"})"), "");
}

TEST(Optimizer, NarrowStatesHaveTheDtypeOfTheMasters) {
  const std::string narrow = R"("optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}})";
  const Config exact = parse_members(narrow);
  EXPECT_EQ(exact.notices,
            (std::vector<std::string>{
                "optimizer.params.fp32_optimizer_states: false changes nothing: moments have the dtype of the masters "
                "then, which is fp32, as in DeepSpeed. bf16.bf16_optimizer_states keeps them in bf16."}));
  const Config bf16 = parse_members(narrow + R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true})");
  EXPECT_FALSE(bf16.optimizer.fp32_states);
  EXPECT_TRUE(bf16.notices.empty());
  EXPECT_EQ(mistakes_of(narrow + R"(, "fp16": {"enabled": true, "fp16_master_weights_and_grads": true})"),
            "[line 1, optimizer.params.fp32_optimizer_states] false keeps the moments in fp16, beside fp16 masters: a "
            "square below 6e-8 is zero there, and the update divides by its root. Remove the key, or use bf16 with "
            "bf16_optimizer_states.");
}

TEST(Optimizer, TypesThatShoalDoesNotHaveAreNamed) {
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "Muon", "params": {"muon_lr": 1, "lr": "x"}})"),
            "[line 1, optimizer.type] Muon is not supported yet. Give one of " + optimizer_names() + ".");
}

TEST(Optimizer, WrongParametersAreExplained) {
  EXPECT_EQ(mistakes_of(R"("optimizer": {"params": {"betas": [0.9, 1.0]}})"),
            "[line 1, optimizer.params.betas] [0.9, 1] is out of range. Give two numbers of at least 0 and below 1.");
  EXPECT_EQ(mistakes_of(R"("optimizer": {"params": {"max_grad_norm": 1.0}})"),
            "[line 1, optimizer.params.max_grad_norm] 1 does not belong here. Write \"gradient_clipping\" at the top "
            "level instead.");
  EXPECT_EQ(
      mistakes_of(R"("optimizer": {"params": {"amsgrad": true}})"),
      "[line 1, optimizer.params.amsgrad] true is not supported yet. Remove the key, or set torch_adam to true in "
      "the package deepspeed.");
  EXPECT_EQ(mistakes_of(R"("optimizer": {"type": "SGD", "params": {"nesterov": true}})"),
            "[line 1, optimizer.params.nesterov] true needs a momentum above 0 and no dampening; they are 0 and 0. Set "
            "them so, or "
            "remove nesterov.");
}

}  // namespace shoal::config
