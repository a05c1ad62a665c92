#include "models/dense/mixture.h"

#include <gmock/gmock.h>

#include <cmath>

#include "training/outcome.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::HasSubstr;
using testing::message_of;
using testing::tiny_dense_json;
using testing::TinyTraining;

namespace {

const std::string kMixtral = R"(, "num_key_value_heads": 1, "num_local_experts": 4)";
const std::string kBalanced = R"(, "output_router_logits": true, "router_aux_loss_coef": 0.5)";

at::Tensor loss_of(TinyTraining& training, ForwardReport* report) {
  return training.model->loss(training.engine, TinyTraining::tokens(0), TinyTraining::tokens(1), nullptr, report);
}

}  // namespace

TEST(Mixture, ReportsTheTokensOfEachExpert) {
  const auto world = make_single_group();
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    TinyTraining training({.config_json = tiny_dense_json("mixtral", kMixtral), .open = {.recompute = recompute}},
                          *world);
    ForwardReport report;
    training.engine.backward(loss_of(training, &report));
    ASSERT_EQ(report.expert_tokens.sizes().vec(), (std::vector<int64_t>{2, 4}));
    for (int64_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(report.expert_tokens[layer].sum().item<int64_t>(), 2 * 9 * 2) << "two experts a token";
    }
    EXPECT_FALSE(report.balance_loss.defined());
  }
}

TEST(Mixture, OnlyLayersWithExpertsAreReported) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = testing::tiny_mixtures()[2]}, *world);  // the first layer is dense
  ForwardReport report;
  loss_of(training, &report);
  EXPECT_EQ(report.expert_tokens.sizes().vec(), (std::vector<int64_t>{1, 6}));
  TinyTraining dense({.config_json = testing::tiny_llama_json()}, *world);
  ForwardReport none;
  loss_of(dense, &none);
  EXPECT_FALSE(none.expert_tokens.defined());
}

// Without learned weights routers find all experts about as probable: the loss is near its least, the experts a token.
TEST(Mixture, TheAuxiliaryLossIsAddedInTrainingOnly) {
  const auto world = make_single_group();
  TinyTraining plain({.config_json = tiny_dense_json("mixtral", kMixtral)}, *world);
  TinyTraining balanced({.config_json = tiny_dense_json("mixtral", kMixtral + kBalanced)}, *world);
  EXPECT_EQ(balanced.evaluate(0), plain.evaluate(0));
  ForwardReport report;
  const double loss = loss_of(balanced, &report).item<double>();
  const double auxiliary = report.balance_loss.item<double>();
  EXPECT_NEAR(auxiliary, 2, 0.2);
  EXPECT_NEAR(loss - 0.5 * auxiliary, loss_of(plain, nullptr).item<double>(), 1e-6);
}

TEST(Mixture, TheAuxiliaryLossBalancesTheExperts) {
  const auto world = make_single_group();
  const auto auxiliary_after = [&](double coefficient) {
    TinyTraining training({.config_json = tiny_dense_json("mixtral", kMixtral + R"(, "initializer_range": 0.5)"),
                           .open = {.router_aux_loss = coefficient}},
                          *world);
    double last = 0;
    for (int step = 0; step < 20; ++step) {
      ForwardReport report;
      training.engine.backward(loss_of(training, &report));
      training.engine.step();
      last = report.balance_loss.item<double>();
    }
    return last;
  };
  EXPECT_LT(auxiliary_after(10), auxiliary_after(1e-9) - 0.02);
}

TEST(Mixture, Fp8IsRefused) {
  const auto world = make_single_group();
  const auto model = testing::open_json(tiny_dense_json("mixtral", kMixtral));
  const Config config =
      Config::from_text(R"({"train_batch_size": 2, "bf16": {"enabled": true}, "fp8": {"enabled": true},)"
                        R"( "optimizer": {"type": "AdamW"}})");
  Engine engine(model->units(), config, *world);
  EXPECT_THAT(message_of([&] { model->loss(engine, TinyTraining::tokens(0), TinyTraining::tokens(1)); }),
              HasSubstr("[config fp8.enabled] true, and experts"));
}

}  // namespace shoal::models
