// The engine's promises to its users that take several ranks: odd parameters at every stage, parameter groups, scaling
// of gradients, several engines, and what is left when an engine goes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "training/matrix_engine.h"

namespace shoal {

using testing::bytes_of;
using testing::config_of;
using ::testing::HasSubstr;
using testing::kWidth;
using testing::MatrixEngine;
using testing::MatrixModel;
using testing::message_of;
using testing::on_threads;
using testing::released_at;
using testing::RunOptions;

namespace {

class EngineApi : public ::testing::TestWithParam<int> {
 protected:
  RunOptions options() const { return released_at(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Stages, EngineApi, ::testing::Range(0, 4));

// Parameters of every stored dtype in one unit, some of them kept as they are, one never used, one empty.
struct MixedModel {
  at::Tensor first = random({5, 7}, 1), gain = random({7}, 2), third = random({7, 3}, 3).to(at::kHalf).detach(),
             unused = random({11}, 4), empty = random({0}, 5), frozen = random({1}, 6), last = random({3, 1}, 7);
  MixedModel() {
    for (at::Tensor* tensor : {&first, &gain, &third, &unused, &empty, &last}) tensor->set_requires_grad(true);
  }
  static at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    return at::empty(shape).normal_(0, 0.5, generator);
  }
  std::vector<Unit> units() const {
    return {
        {"mixed",
         {{"first", first}, {"gain", gain, 0, true}, {"third", third, 0, true}, {"unused", unused}, {"empty", empty}}},
        {"last", {{"frozen", frozen, 0, true}, {"last", last}}}};
  }
  static std::vector<std::string> names() { return {"first", "gain", "third", "unused", "empty", "frozen", "last"}; }
  std::vector<at::Tensor> tensors() const { return {first, gain, third, unused, empty, frozen, last}; }

  at::Tensor loss(Engine& engine, const at::Tensor& x) const {
    const at::Tensor y = engine.run(0, x, [&](const at::Tensor& t) {
      const at::Tensor h = at::mm(t.to(first.scalar_type()), first).to(at::kFloat) * gain + empty.sum().to(at::kFloat);
      return at::mm(h.to(third.scalar_type()), third).to(at::kFloat);
    });
    const at::Tensor z =
        engine.run(1, y, [&](const at::Tensor& t) { return at::mm(t.to(last.scalar_type()), last) * frozen; });
    return z.to(at::kFloat).square().mean();
  }
};

std::string train_mixed(Group& group, int stage, Precision precision, int64_t threshold) {
  at::set_num_threads(1);
  RunOptions run = released_at(stage);
  run.precision = precision;
  run.persistence_threshold = threshold;
  Config config = config_of(run, group.size());
  config.optimizer.weight_decay = 0;  // so that what is never used never moves
  const MixedModel model;
  Engine engine(model.units(), config, group);
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    const at::Tensor loss =
        model.loss(engine, MixedModel::random({4, 5}, static_cast<uint64_t>(100 + 10 * step + group.rank())));
    losses.push_back(loss.item<double>());
    engine.backward(loss);
    const StepResult result = engine.step();
    EXPECT_TRUE(result.applied);
    losses.push_back(result.grad_norm);
  }
  std::string bits = testing::RunResult::bits(losses);
  engine.with_gathered(MixedModel::names(), Access::read, [&] {
    EXPECT_EQ(model.gain.scalar_type(), at::kFloat);
    EXPECT_EQ(model.third.scalar_type(), at::kHalf);
    EXPECT_TRUE(at::equal(model.frozen, MixedModel().frozen));
    EXPECT_TRUE(at::equal(model.unused, MixedModel().unused.to(model.unused.scalar_type())));
    EXPECT_FALSE(at::equal(model.gain, MixedModel().gain));
    for (const at::Tensor& tensor : model.tensors()) bits += bytes_of(tensor);
  });
  return bits;
}

// Weights of a parameter after `steps` steps with these groups.
std::vector<at::Tensor> trained_with(int stage, const std::vector<ParamGroup>& groups, int steps,
                                     double config_decay = 0.1) {
  return on_threads<std::vector<at::Tensor>>(2, [&](Group& group) {
    Config config = config_of(released_at(stage), 2);
    config.optimizer.weight_decay = config_decay;
    EngineOptions engine_options = testing::two_groups();
    engine_options.groups = groups;
    MatrixEngine matrix(group, config, engine_options);
    for (int step = 0; step < steps; ++step) matrix.train_step(step);
    std::vector<at::Tensor> values;
    matrix.engine->with_gathered(MatrixModel::names(), Access::read, [&] {
      for (const at::Tensor& tensor : matrix.model.tensors()) values.push_back(tensor.detach().clone());
    });
    return values;
  })[0];
}

// Places in MatrixModel::tensors().
constexpr size_t kInGroup0[] = {0, 1, 3, 6, 9};  // wte, w1, w2, w, sometimes
constexpr size_t kInGroup1[] = {2, 5, 7, 10};    // b1, scale, gain, bias

size_t resident_nbytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Losses, norms and weights under a changed config.
testing::RunResult train_under(Group& group, const RunOptions& run, const std::function<void(Config&)>& change) {
  Config config = config_of(run, group.size());
  change(config);
  MatrixEngine matrix(group, config);
  testing::RunResult result;
  for (int step = 0; step < 3; ++step) {
    const StepResult stepped = matrix.train_step(step);
    result.norms.push_back(stepped.grad_norm);
    result.applied.push_back(stepped.applied);
  }
  result.weights = matrix.weights();
  return result;
}

}  // namespace

TEST(EngineApi, MixedDtypesAndOddParametersGiveTheSameBitsAtEveryStage) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (int world = 1; world <= 3; ++world) {
      const auto trained = [&](int stage, int64_t threshold) {
        return on_threads<std::string>(world,
                                       [&](Group& group) { return train_mixed(group, stage, precision, threshold); });
      };
      for (const int64_t threshold : {0, 10}) {
        const std::vector<std::string> expected = trained(0, threshold);
        for (int stage = 1; stage <= 3; ++stage)
          EXPECT_EQ(trained(stage, threshold), expected) << "world " << world << " stage " << stage;
      }
    }
  }
}

TEST_P(EngineApi, ReleasedParametersThrowOnEveryRankAndTrainingGoesOn) {
  const auto trained = [&](bool touch) {
    return on_threads<std::string>(3, [&](Group& group) {
      MatrixEngine matrix(group, options());
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = matrix.loss(step);
        if (touch && GetParam() == 3) {
          EXPECT_THAT(message_of([&] { matrix.model.wte.norm(); }), HasSubstr("[parameter wte] is released"));
        }
        matrix.engine->backward(loss);
        matrix.engine->step();
      }
      return matrix.weights();
    });
  };
  EXPECT_EQ(trained(true), trained(false));
}

// Trainable weights around a frozen unit, a unit without parameters, and one that runs inside another.
TEST(EngineApi, FrozenEmptyAndNestedUnitsGiveTheSameBitsAtEveryStage) {
  const auto trained = [](int stage, bool recompute) {
    return on_threads<std::string>(2, [&](Group& group) {
      at::set_num_threads(1);
      const at::Tensor first = MixedModel::random({6, 6}, 1).set_requires_grad(true);
      const at::Tensor frozen = MixedModel::random({6, 6}, 2);
      const at::Tensor outer = MixedModel::random({6, 6}, 3).set_requires_grad(true);
      const at::Tensor inner = MixedModel::random({6, 6}, 4).set_requires_grad(true);
      Engine engine({{"first", {{"first.w", first}}},
                     {"frozen", {{"frozen.w", frozen}}},
                     {"none", {}},
                     {"outer", {{"outer.w", outer}}},
                     {"inner", {{"inner.w", inner}}}},
                    config_of(released_at(stage), 2), group);
      const auto unit = [&](int index, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& step) {
        if (!recompute) return engine.run(index, x, step);
        return engine.recompute(x, [&engine, index, step](const at::Tensor& t) { return engine.run(index, t, step); });
      };
      for (int step = 0; step < 4; ++step) {
        at::Tensor x = MixedModel::random({3, 6}, static_cast<uint64_t>(10 * step + group.rank()));
        x = unit(0, x, [&](const at::Tensor& t) { return at::mm(t, first); });
        x = unit(1, x, [&](const at::Tensor& t) { return at::mm(t, frozen).tanh(); });
        x = unit(2, x, [&](const at::Tensor& t) { return t * 2; });
        x = unit(3, x, [&](const at::Tensor& t) {
          return at::mm(engine.run(4, at::mm(t, outer), [&](const at::Tensor& u) { return at::mm(u, inner); }).tanh(),
                        outer);
        });
        engine.backward(x.square().mean());
        EXPECT_TRUE(engine.step().applied);
      }
      std::string bits;
      engine.with_gathered({"first.w", "frozen.w", "outer.w", "inner.w"}, Access::read, [&] {
        for (const at::Tensor& tensor : {first, frozen, outer, inner}) bits += bytes_of(tensor);
        EXPECT_TRUE(at::equal(frozen, MixedModel::random({6, 6}, 2)));
        EXPECT_FALSE(at::equal(first, MixedModel::random({6, 6}, 1)));
      });
      return bits;
    })[1];
  };
  const std::string expected = trained(0, false);
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(trained(stage, false), expected) << "stage " << stage;
    EXPECT_EQ(trained(stage, true), expected) << "stage " << stage << " with recompute";
  }
}

TEST_P(EngineApi, AForwardThatNobodyBackPropagatesChangesNoStep) {
  const auto trained = [&](bool before_step, bool after_step) {
    return on_threads<std::string>(2, [&](Group& group) {
      MatrixEngine matrix(group, options());
      const testing::ForwardOptions alike = {.dropout = 0};  // which draws from the engine's numbers
      for (int step = 0; step < 4; ++step) {
        if (after_step && step > 0) matrix.loss(step + 200, alike);
        matrix.engine->backward(matrix.loss(step, alike));
        if (before_step) matrix.loss(step + 100, alike);
        matrix.engine->step();
      }
      return matrix.weights();
    });
  };
  const std::vector<std::string> plain = trained(false, false);
  EXPECT_TRUE(trained(true, false) == plain);
  EXPECT_TRUE(trained(false, true) == plain);
  EXPECT_TRUE(trained(true, true) == plain);
}

TEST_P(EngineApi, ABackwardOfAForwardFromBeforeTheStepIsRefused) {
  for (const std::string& message : on_threads<std::string>(2, [&](Group& group) {
         MatrixEngine matrix(group, options());
         matrix.engine->backward(matrix.loss(0));
         const at::Tensor late = matrix.loss(1);
         matrix.engine->step();
         return message_of([&] { matrix.engine->backward(late); });
       })) {
    EXPECT_THAT(message, HasSubstr("before the step"));
  }
}

TEST_P(EngineApi, AGroupsRateAndDecayReallyHoldForItsParameters) {
  const auto equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, size_t i) {
    return at::equal(a[i], b[i]);
  };
  const std::vector<at::Tensor> one = trained_with(GetParam(), {{}, {}}, 1);
  const std::vector<at::Tensor> same = trained_with(GetParam(), {{}, {.lr = 3e-3, .weight_decay = 0.1}}, 1);
  const std::vector<at::Tensor> no_rate = trained_with(GetParam(), {{}, {.lr = 0.0, .weight_decay = {}}}, 1);
  const std::vector<at::Tensor> no_decay = trained_with(GetParam(), {{}, {.lr = {}, .weight_decay = 0.0}}, 1);
  const std::vector<at::Tensor> other_first = trained_with(GetParam(), {{.lr = 1e-4, .weight_decay = 0.5}, {}}, 1);
  const std::vector<at::Tensor> start = MatrixModel().tensors();
  for (const size_t i : kInGroup0) {
    EXPECT_TRUE(equal(one, same, i));
    EXPECT_TRUE(equal(one, no_rate, i));
    EXPECT_TRUE(equal(one, no_decay, i));
    EXPECT_FALSE(equal(one, other_first, i));
  }
  for (const size_t i : kInGroup1) {
    EXPECT_TRUE(equal(one, same, i));
    EXPECT_TRUE(equal(no_rate, start, i));
    EXPECT_FALSE(equal(one, start, i));
    EXPECT_FALSE(equal(one, no_decay, i));
    EXPECT_TRUE(equal(one, other_first, i));
  }
}

TEST_P(EngineApi, GroupsThatDifferBetweenRanksAreSaidOnEveryRank) {
  const auto messages = on_threads<std::string>(3, [&](Group& group) {
    EngineOptions engine_options = testing::two_groups();
    engine_options.groups[1].lr = group.rank() == 2 ? 0.5 : 0.25;
    return message_of([&] { MatrixEngine(group, options(), engine_options); });
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("[engine] the ranks disagree: rank 2 has other parameter groups than rank 0"));
  }
}

TEST_P(EngineApi, DividingBeforeOrAfterTheSumIsTheSameForPowersOfTwo) {
  on_threads<int>(2, [&](Group& group) {
    const testing::RunResult plain = train_under(group, options(), [](Config&) {});
    EXPECT_TRUE(train_under(group, options(), [](Config& config) { config.prescale_gradients = true; }) == plain);
    EXPECT_TRUE(train_under(group, options(), [](Config& config) { config.gradient_predivide_factor = 2; }) == plain);
    EXPECT_TRUE(train_under(group, options(), [](Config& config) { config.gradient_predivide_factor = 0.5; }) == plain);
    const testing::RunResult sum = train_under(group, options(), [](Config& config) { config.gradient_sum = true; });
    EXPECT_EQ(sum.norms[0], 2 * plain.norms[0]);
    return 0;
  });
}

TEST_P(EngineApi, TheCommunicationDtypeIsUsedAlikeAtEveryStage) {
  on_threads<int>(2, [&](Group& group) {
    RunOptions run = options();
    run.precision = Precision::bf16;
    for (const DType dtype : {DType::f32, DType::f16}) {
      const auto communicate = [&](Config& config) { config.communication_dtype = dtype; };
      const testing::RunResult at_this_stage = train_under(group, run, communicate);
      run.stage = 0;
      EXPECT_TRUE(train_under(group, run, communicate) == at_this_stage);
      EXPECT_FALSE(train_under(group, run, [](Config&) {}) == at_this_stage);
      run.stage = GetParam();
    }
    return 0;
  });
}

TEST_P(EngineApi, TheFp16ScaleFallsOnOverflowAndRisesAfterTheWindow) {
  on_threads<int>(2, [&](Group& group) {
    RunOptions run = options();
    run.precision = Precision::fp16;
    Config config = config_of(run, 2);
    config.fp16.initial_scale_power = 4;
    config.fp16.loss_scale_window = 2;
    config.fp16.hysteresis = 2;
    MatrixEngine matrix(group, config);
    std::vector<double> scales;
    for (int step = 0; step < 8; ++step) {
      at::Tensor loss = matrix.loss(step);
      if ((step == 1 || step == 2) && group.rank() == 1) loss = loss * INFINITY;  // one rank's overflow is everybody's
      matrix.engine->backward(loss);
      const StepResult result = matrix.engine->step();
      EXPECT_EQ(result.applied, step != 1 && step != 2);
      scales.push_back(result.loss_scale);
    }
    EXPECT_EQ(scales, (std::vector<double>{16, 16, 16, 8, 8, 8, 16, 16}));
    return 0;
  });
}

TEST_P(EngineApi, TwoEnginesOverOneGroupTrainAsIfAlone) {
  const auto alone = [&](Precision precision) {
    return on_threads<std::string>(2, [&](Group& group) {
      RunOptions run = options();
      run.precision = precision;
      MatrixEngine matrix(group, run);
      for (int step = 0; step < 3; ++step) matrix.train_step(step);
      return matrix.weights();
    })[0];
  };
  const std::string fp32 = alone(Precision::fp32);
  const std::string bf16 = alone(Precision::bf16);
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine first(group, options());
    RunOptions other = options();
    other.precision = Precision::bf16;
    MatrixEngine second(group, other);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor first_loss = first.loss(step);
      second.train_step(step);
      first.engine->backward(first_loss);
      first.engine->step();
    }
    EXPECT_EQ(first.weights(), fp32);
    first.engine.reset();
    EXPECT_EQ(second.weights(), bf16);
    return 0;
  });
}

// Rank 0 destroys its engine while the others wait for it in a barrier: a destructor that communicated would hang.
TEST_P(EngineApi, DestroyingAnEngineCommunicatesNothing) {
  on_threads<int>(
      3,
      [&](Group& group) {
        MatrixEngine matrix(group, options());
        matrix.train_step(0);
        const at::Tensor loss = matrix.loss(1);  // in the middle of a pass, too
        const Traffic before = group.traffic();
        if (group.rank() == 0) matrix.engine.reset();
        EXPECT_EQ(group.traffic().collectives, before.collectives);
        group.barrier({"wait for rank 0", "nothing"}).wait();
        return 0;
      },
      std::chrono::seconds(20));
}

TEST_P(EngineApi, BelowStageThreeParametersStayUsableWhenTheirEngineIsGone) {
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine matrix(group, options());
    matrix.train_step(0);
    const std::string left = matrix.weights();
    matrix.engine.reset();
    if (GetParam() == 3) make_whole(matrix.model.units(), group);
    EXPECT_EQ(matrix.plain_weights(), left);
    const at::Tensor x = at::ones({1, kWidth});
    const at::Tensor loss = at::linear(x, matrix.model.w).sum() + matrix.model.scale.sum();
    loss.backward();  // autograd accumulates as it always did
    EXPECT_TRUE(at::equal(matrix.model.w.grad(), at::ones({kWidth, kWidth})));
    EXPECT_EQ(matrix.model.scale.grad().item<float>(), 1);
    return 0;
  });
}

TEST_P(EngineApi, DestroyingAnEngineGivesItsMemoryBack) {
  const std::unique_ptr<Group> group = make_single_group();
  at::Tensor weight = at::ones({4 << 20}).set_requires_grad(true);
  const std::vector<Unit> units = {{"u", {{"w", weight}}}};
  auto engine = std::make_unique<Engine>(units, config_of(options(), 1), *group);
  engine->backward(engine->run(0, at::ones({1}), [&](const at::Tensor& x) { return (weight * x).sum(); }));
  engine->step();
  const MemoryPlan held = engine->meters().memory().held;
  EXPECT_GE(held.states, 2 * weight.nbytes());
  const size_t before = resident_nbytes();
  engine.reset();
  const size_t after = resident_nbytes();
  // The weights stay with the parameter; a second reduce slot was never touched.
  const size_t slack = 1 << 20;
  EXPECT_GE(before + slack, after + held.gradients + held.states + held.gather_arena + held.reduce_slots / 2);
}

TEST_P(EngineApi, EvaluationSkippedByPartsOfSomeRanksLeavesTrainingAsItWas) {
  const auto trained = [&](bool evaluate) {
    return on_threads<std::string>(3, [&](Group& group) {
      MatrixEngine matrix(group, options());
      for (int step = 0; step < 3; ++step) {
        if (evaluate) {
          matrix.engine->evaluate(
              [&] { matrix.loss(50 + step, {.dropout = 0, .use_sometimes = (step + group.rank()) % 2 == 0}); });
        }
        matrix.train_step(step);
      }
      return matrix.weights();
    });
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace shoal
