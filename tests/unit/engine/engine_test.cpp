// What one rank's engine promises to its user; what takes several ranks is in tests/ranks/engine_api_test.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "training/matrix_engine.h"

namespace shoal {

using testing::batch_of;
using testing::bytes_of;
using testing::config_of;
using ::testing::HasSubstr;
using testing::kWidth;
using testing::MatrixEngine;
using testing::message_of;
using testing::released_at;
using testing::RunOptions;

namespace {

class EngineOfOneRank : public ::testing::TestWithParam<int> {
 protected:
  RunOptions options() const { return released_at(GetParam()); }
  // Weights after `steps` undisturbed steps.
  std::string undisturbed(int steps, const RunOptions& run) {
    MatrixEngine plain(*world_, run);
    for (int step = 0; step < steps; ++step) plain.train_step(step);
    return plain.weights();
  }
  std::unique_ptr<Group> world_ = make_single_group();
};
INSTANTIATE_TEST_SUITE_P(Stages, EngineOfOneRank, ::testing::Range(0, 4));

}  // namespace

TEST_P(EngineOfOneRank, TouchingAReleasedParameterThrowsAndTrainingGoesOnWithTheSameBits) {
  if (GetParam() < 3) {
    MatrixEngine trained(*world_, options());
    trained.train_step(0);
    EXPECT_EQ(message_of([&] { trained.model.w.sum(); }), "");
    return;
  }
  MatrixEngine touched(*world_, options());
  const testing::MatrixModel& model = touched.model;
  const auto touch_all = [&] {
    EXPECT_THAT(message_of([&] { model.w.sum(); }), HasSubstr("[parameter drop.w] is released"));
    EXPECT_THAT(message_of([&] { model.w.clone(); }), HasSubstr("is released"));
    EXPECT_THAT(message_of([&] { model.w.norm(); }), HasSubstr("is released"));
    EXPECT_THAT(message_of([&] { model.w.add(1); }), HasSubstr("is released"));
    EXPECT_THAT(message_of([&] { at::mm(model.w, at::ones({kWidth, kWidth})); }), HasSubstr("is released"));
    EXPECT_THAT(message_of([&] { model.scale.item<float>(); }), HasSubstr("[parameter twice.scale] is released"));
  };
  touch_all();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = touched.loss(step);
    touch_all();  // in the middle of a pass
    touched.engine->backward(loss);
    touched.engine->step();
  }
  EXPECT_EQ(touched.weights(), undisturbed(3, options()));
}

TEST_P(EngineOfOneRank, AForwardThatThrewCanBeRunAgainWithTheSameBits) {
  RunOptions run = options();
  MatrixEngine disturbed(*world_, run);
  const testing::ForwardOptions no_dropout = {.dropout = 0};
  for (int step = 0; step < 3; ++step) {
    const auto fails = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("bad batch"); };
    EXPECT_EQ(message_of([&] { disturbed.engine->run(2, at::ones({2, kWidth}), fails); }), "bad batch");
    disturbed.train_step(step, no_dropout);
  }
  MatrixEngine plain(*world_, run);
  for (int step = 0; step < 3; ++step) plain.train_step(step, no_dropout);
  EXPECT_EQ(disturbed.weights(), plain.weights());
}

TEST_P(EngineOfOneRank, AParameterFrozenAfterTheBuildIsAnErrorAtTheNextEnter) {
  MatrixEngine changed(*world_, options());
  at::Tensor(changed.model.w).set_requires_grad(false);
  EXPECT_THAT(message_of([&] { changed.loss(0); }),
              HasSubstr("[parameter drop.w] was trained when the engine was built and is frozen now"));
}

TEST_P(EngineOfOneRank, AConfigThatWasReadForAnotherWorldIsRefused) {
  const testing::MatrixModel model;
  EXPECT_THAT(message_of([&] { Engine(model.units(), config_of(options(), 2), *world_, testing::two_groups()); }),
              HasSubstr("[config train_batch_size] 4 is not 2 a rank * 1 accumulation steps * 1 ranks = 2"));
}

TEST_P(EngineOfOneRank, AParameterReplacedOrCastUnderTheEngineIsAnErrorAtTheNextEnter) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    MatrixEngine changed(*world_, options());
    changed.train_step(0);
    at::Tensor(changed.model.w).set_data(at::zeros({kWidth, kWidth}, type));
    EXPECT_THAT(message_of([&] { changed.loss(1); }), HasSubstr("[parameter drop.w] was replaced, moved or cast"));
  }
}

TEST_P(EngineOfOneRank, EvaluateGivesTheTrainingLossAndLeavesTrainingAsItWas) {
  MatrixEngine evaluated(*world_, options());
  const testing::ForwardOptions no_dropout = {.dropout = 0};
  double evaluation = 0;
  const auto evaluate = [&](int step) {
    evaluated.engine->evaluate([&] {
      const at::Tensor loss = evaluated.loss(step, no_dropout);
      EXPECT_FALSE(loss.requires_grad());
      evaluation = loss.item<double>();
    });
  };
  MatrixEngine plain(*world_, options());
  for (int step = 0; step < 3; ++step) {
    evaluate(step);
    const at::Tensor loss = evaluated.loss(step, no_dropout);
    EXPECT_EQ(evaluation, loss.item<double>());
    evaluated.engine->backward(loss);
    evaluated.engine->step();
    plain.train_step(step, no_dropout);
  }
  evaluate(7);
  EXPECT_EQ(evaluated.weights(), plain.weights());
}

TEST_P(EngineOfOneRank, AnExceptionInEvaluateLeavesTrainingAsItWas) {
  MatrixEngine disturbed(*world_, options());
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(message_of([&] { disturbed.engine->evaluate([] { throw std::runtime_error("stop"); }); }), "stop");
    disturbed.train_step(step);
  }
  EXPECT_EQ(disturbed.weights(), undisturbed(3, options()));
}

TEST_P(EngineOfOneRank, AUnitUsedWithoutGradientsOutsideEvaluateIsAnError) {
  MatrixEngine matrix(*world_, options());
  at::NoGradGuard without_gradients;
  EXPECT_THAT(message_of([&] { matrix.loss(0); }),
              HasSubstr("[unit embed] is used without gradients in a training pass"));
}

TEST_P(EngineOfOneRank, CallsOutOfOrderAreErrors) {
  MatrixEngine matrix(*world_, options());
  Engine& engine = *matrix.engine;
  EXPECT_THAT(message_of([&] { engine.step(); }), HasSubstr("[step] no gradient has come since the last step"));
  const at::Tensor loss = matrix.loss(0);
  EXPECT_THAT(message_of([&] { engine.evaluate([] {}); }), HasSubstr("[evaluation] a training pass is open"));
  EXPECT_THAT(message_of([&] { engine.with_gathered({"wte"}, Access::read, [] {}); }),
              HasSubstr("[with_gathered] a pass is open"));
  engine.backward(loss);
  EXPECT_TRUE(engine.step().applied);
  EXPECT_THAT(message_of([&] { engine.step(); }), HasSubstr("[step]"));
}

TEST_P(EngineOfOneRank, ALossMustBeAScalarWithAGraph) {
  MatrixEngine matrix(*world_, options());
  const at::Tensor loss = matrix.loss(0);
  EXPECT_THAT(message_of([&] { matrix.engine->backward(loss.expand({3})); }),
              HasSubstr("[backward] the loss has 3 elements"));
  EXPECT_THAT(message_of([&] { matrix.engine->backward(loss.detach()); }), HasSubstr("has not a graph"));
  EXPECT_THAT(message_of([&] { matrix.engine->backward({}); }), HasSubstr("[backward]"));
  matrix.engine->backward(loss);  // none of it did harm
  EXPECT_TRUE(matrix.engine->step().applied);
}

TEST_P(EngineOfOneRank, BackwardCalledOnTheLossItselfIsAnErrorAndTrainingCanGoOn) {
  for (const bool recompute : {false, true}) {
    const testing::ForwardOptions forward = {.dropout = 0, .recompute = recompute};
    MatrixEngine disturbed(*world_, options());
    MatrixEngine plain(*world_, options());
    for (int step = 0; step < 3; ++step) {  // while the order is recorded, and after it
      const at::Tensor loss = disturbed.loss(step, forward);
      EXPECT_THAT(message_of([&] { torch::autograd::backward({loss}, {}); }), HasSubstr("outside Engine::backward"));
      disturbed.train_step(step, forward);
      plain.train_step(step, forward);
    }
    EXPECT_EQ(disturbed.weights(), plain.weights());
  }
}

TEST_P(EngineOfOneRank, ASparseGradientIsAnError) {
  at::Tensor table = at::ones({5, 4}).set_requires_grad(true);
  Engine engine({{"embed", {{"table", table}}}}, config_of(options(), 1), *world_);
  const at::Tensor ids = at::zeros({2}, at::kLong);
  const at::Tensor out = engine.run(0, ids, [&](const at::Tensor& t) {
    return at::embedding(table, t, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
  });
  EXPECT_THAT(message_of([&] { engine.backward(out.sum()); }),
              HasSubstr("[gradient in unit embed] a parameter's gradient is sparse"));
}

TEST_P(EngineOfOneRank, AGradientThatIsNotFiniteSkipsTheStepAndNamesTheUnit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    RunOptions run = options();
    run.precision = precision;
    MatrixEngine matrix(*world_, run);
    matrix.train_step(0);
    const std::string before = matrix.weights();
    const double scale = matrix.engine->state().loss_scale();
    const at::Tensor loss = matrix.loss(1);
    const at::Tensor bad =
        matrix.engine->run(3, at::ones({1, kWidth}).to(matrix.model.sometimes.scalar_type()),
                           [&](const at::Tensor& t) { return at::linear(t, matrix.model.sometimes) * INFINITY; });
    matrix.engine->backward(loss + bad.sum().to(at::kFloat));
    const StepResult result = matrix.engine->step();
    EXPECT_TRUE(result.boundary);
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.overflow_unit, "sometimes");
    EXPECT_EQ(result.skipped_steps, 1);
    EXPECT_EQ(result.applied_steps, 1);
    EXPECT_EQ(matrix.weights(), before);
    EXPECT_EQ(matrix.engine->state().loss_scale(), precision == Precision::fp16 ? scale / 2 : 1);
    EXPECT_TRUE(matrix.train_step(2).applied);
    EXPECT_NE(matrix.weights(), before);
  }
}

TEST_P(EngineOfOneRank, TheLossScaleStopsTheRunWhenItsMinimumOverflows) {
  RunOptions run = options();
  run.precision = Precision::fp16;
  Config config = config_of(run, 1);
  config.fp16.initial_scale_power = 1;
  config.fp16.min_loss_scale = 1;
  MatrixEngine matrix(*world_, config);
  for (const double expected : {2.0, 1.0}) {
    EXPECT_EQ(matrix.engine->state().loss_scale(), expected);
    matrix.engine->backward(matrix.loss(0) * INFINITY);
    if (expected == 2) {
      EXPECT_FALSE(matrix.engine->step().applied);
    } else {
      EXPECT_THAT(message_of([&] { matrix.engine->step(); }), HasSubstr("[loss scale]"));
    }
  }
}

TEST_P(EngineOfOneRank, AScaleTakesNothingFromTheGradientsAndTheNorm) {
  const auto norm_at_scale = [&](double scale) {
    RunOptions run = options();
    run.precision = Precision::fp16;
    Config config = config_of(run, 1);
    config.fp16.loss_scale = scale;
    MatrixEngine matrix(*world_, config);
    const StepResult result = matrix.train_step(0);
    EXPECT_EQ(result.loss_scale, scale);
    return result.grad_norm;
  };
  EXPECT_NEAR(norm_at_scale(256), norm_at_scale(1024), 2e-3 * norm_at_scale(256));
}

TEST_P(EngineOfOneRank, AccumulationReturnsABoundaryOnlyAtTheLastMicroStep) {
  RunOptions run = options();
  run.accumulation = 3;
  MatrixEngine matrix(*world_, run);
  const std::string before = matrix.weights();
  for (int micro = 0; micro < 3; ++micro) {
    EXPECT_EQ(matrix.weights(), before);
    const StepResult result = matrix.train_step(micro);
    EXPECT_EQ(result.boundary, micro == 2);
    EXPECT_EQ(result.applied, micro == 2);
  }
  EXPECT_NE(matrix.weights(), before);
}

TEST_P(EngineOfOneRank, TheScheduleIsDrivenByAppliedStepsAndEachGroupHasItsRate) {
  Config config = config_of(options(), 1);
  config.scheduler = {
      .kind = SchedulerKind::warmup, .params = {{"warmup_min_lr", 0.0}, {"warmup_num_steps", 4}}, .log_warmup = false};
  MatrixEngine matrix(*world_, config);
  std::vector<double> rates;
  for (int step = 0; step < 4; ++step) {
    at::Tensor loss = matrix.loss(step);
    if (step == 2) loss = loss * INFINITY;  // skipped: the schedule stays
    matrix.engine->backward(loss);
    const StepResult result = matrix.engine->step();
    rates.push_back(result.lrs.at(0));
    EXPECT_NEAR(result.lrs.at(1), result.lrs[0] / 3, 1e-12);
  }
  EXPECT_EQ(rates, (std::vector<double>{0, 0, 3e-3 / 4, 3e-3 / 4}));
}

TEST_P(EngineOfOneRank, TwoEnginesTrainAlternatelyAsIfAlone) {
  MatrixEngine first(*world_, options());
  RunOptions other_run = options();
  other_run.stage = 3 - GetParam();
  other_run.precision = Precision::bf16;
  MatrixEngine second(*world_, other_run);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor first_loss = first.loss(step);
    const at::Tensor second_loss = second.loss(step);
    first.engine->backward(first_loss);
    second.engine->backward(second_loss);
    second.engine->step();
    first.engine->step();
  }
  EXPECT_EQ(first.weights(), undisturbed(3, options()));
  EXPECT_EQ(second.weights(), undisturbed(3, other_run));
}

TEST_P(EngineOfOneRank, AGraphThatOutlivesItsEngineDoesNotEndTheProcess) {
  at::Tensor loss;
  {
    MatrixEngine matrix(*world_, options());
    loss = matrix.loss(0);
  }
  const std::string message = message_of([&] { torch::autograd::backward({loss}, {}); });
  if (GetParam() == 3) {
    EXPECT_THAT(message, HasSubstr("is released"));
  } else {
    EXPECT_EQ(message, "");
  }
}

TEST_P(EngineOfOneRank, AForwardRepeatedInBackwardOrRunInEvaluationIsNotCountedAsForward) {
  Config config = config_of(options(), 1);
  config.wall_clock_breakdown = true;
  const at::Tensor weight = at::ones({2, 2}).set_requires_grad(true);
  Engine engine({{"u", {{"w", weight}}}}, config, *world_);
  const auto slow = [&](const at::Tensor& x) {
    return engine.run(0, x, [&](const at::Tensor& t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return at::linear(t, weight);
    });
  };
  engine.evaluate([&] { slow(at::ones({1, 2})); });
  const auto before = std::chrono::steady_clock::now();
  const at::Tensor loss = engine.recompute(at::ones({1, 2}), slow).sum();
  const std::chrono::duration<double, std::milli> once = std::chrono::steady_clock::now() - before;
  ::testing::internal::CaptureStderr();
  engine.backward(loss);
  engine.step();
  const std::string printed = ::testing::internal::GetCapturedStderr();
  double forward = 0, backward = 0;
  const size_t at = printed.find("forward ");
  ASSERT_NE(at, std::string::npos) << printed;
  ASSERT_EQ(std::sscanf(printed.c_str() + at, "forward %lf ms | backward %lf ms", &forward, &backward), 2) << printed;
  EXPECT_GE(forward, 500) << printed;
  EXPECT_LT(forward, once.count() + 1) << printed;  // not with the evaluation, nor with the repetition in backward
  EXPECT_GE(backward, 500) << printed;
}

TEST_P(EngineOfOneRank, UnitsAreFoundByNameAndByIndex) {
  MatrixEngine matrix(*world_, options());
  EXPECT_EQ(matrix.engine->unit_index("drop"), 2);
  EXPECT_THAT(message_of([&] { matrix.engine->unit_index("dorp"); }),
              HasSubstr("there is no unit dorp. Did you mean drop?"));
  const auto same = [](const at::Tensor& t) { return t; };
  EXPECT_THAT(message_of([&] { matrix.engine->run(5, at::ones({1}), same); }),
              HasSubstr("there is no unit 5: the model has 5"));
  EXPECT_THAT(message_of([&] { matrix.engine->run(-1, at::ones({1}), same); }), HasSubstr("there is no unit -1"));
}

}  // namespace shoal
