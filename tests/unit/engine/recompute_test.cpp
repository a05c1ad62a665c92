#include "engine/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/generator.h"
#include "training/matrix_engine.h"
#include "training/own_linear.h"
#include "unit/engine/late_copy_streams.h"
#include "unit/engine/two_units.h"
#include "unit/optim/far_queue.h"

namespace shoal {

using testing::batch_of;
using ::testing::HasSubstr;
using testing::kWidth;
using testing::MatrixEngine;
using testing::MatrixModel;
using testing::message_of;
using testing::released_at;

namespace {

class Recompute : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Group> world_ = make_single_group();
};
INSTANTIATE_TEST_SUITE_P(Stages, Recompute, ::testing::Values(0, 2, 3));

using Part = std::function<at::Tensor(const at::Tensor&)>;
// How the middle of the model is run: `parts` are its four uses of units.
using Middle = std::function<at::Tensor(Engine&, const at::Tensor&, const std::vector<Part>&)>;

at::Tensor plainly(Engine&, const at::Tensor& x, const std::vector<Part>& parts) {
  at::Tensor y = x;
  for (const Part& part : parts) y = part(y);
  return y;
}

at::Tensor one_region(Engine& engine, const at::Tensor& x, const std::vector<Part>& parts) {
  return engine.recompute(x, [&engine, parts](const at::Tensor& t) { return plainly(engine, t, parts); });
}

// A region inside a region, with uses before, inside and after it.
at::Tensor nested(Engine& engine, const at::Tensor& x, const std::vector<Part>& parts) {
  return engine.recompute(x, [&engine, parts](const at::Tensor& t) {
    const at::Tensor inner =
        engine.recompute(parts[0](t), [parts](const at::Tensor& u) { return parts[2](parts[1](u)); });
    return parts[3](inner);
  });
}

at::Tensor thrice_nested(Engine& engine, const at::Tensor& x, const std::vector<Part>& parts) {
  return engine.recompute(x, [&engine, parts](const at::Tensor& t) {
    return engine.recompute(t, [&engine, parts](const at::Tensor& u) {
      return engine.recompute(u, [&engine, parts](const at::Tensor& v) { return plainly(engine, v, parts); });
    });
  });
}

// Losses and weights of three steps.
std::string trained_bits(Group& world, int stage, const Middle& middle) {
  MatrixEngine matrix(world, released_at(stage));
  Engine& engine = *matrix.engine;
  const MatrixModel& model = matrix.model;
  const auto in_unit = [&](int unit, Part part) {
    return [&engine, unit, part](const at::Tensor& t) { return engine.run(unit, t, part); };
  };
  const std::vector<Part> parts = {
      in_unit(1, [&](const at::Tensor& t) { return model.twice(t); }),
      in_unit(2, [&](const at::Tensor& t) { return model.drop(t, 0.25, engine.generator()); }),
      in_unit(3, [&](const at::Tensor& t) { return t + at::linear(t, model.sometimes); }),
      in_unit(1, [&](const at::Tensor& t) { return model.twice(t); })};
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const testing::Batch batch = batch_of(step, 0, 0);
    at::Tensor x = engine.run(0, batch.ids, [&](const at::Tensor& ids) { return at::embedding(model.wte, ids); });
    x = middle(engine, x, parts);
    const at::Tensor logits = engine.run(4, x, [&](const at::Tensor& t) { return model.head(t); });
    const at::Tensor loss = testing::cross_entropy(logits, batch.labels);
    losses.push_back(loss.item<double>());
    engine.backward(loss);
    engine.step();
  }
  return testing::RunResult::bits(losses) + matrix.weights();
}

}  // namespace

TEST_P(Recompute, OfEachUnitGivesTheSameBits) {
  testing::RunOptions run = released_at(GetParam());
  run.steps = 4;
  const testing::RunResult plain = testing::train(*world_, run);
  run.recompute = true;
  EXPECT_TRUE(testing::train(*world_, run) == plain);
}

TEST_P(Recompute, OfARegionWithSeveralUnitsGivesTheSameBits) {
  EXPECT_EQ(trained_bits(*world_, GetParam(), one_region), trained_bits(*world_, GetParam(), plainly));
}

TEST_P(Recompute, InsideRecomputeGivesTheSameBits) {
  const std::string expected = trained_bits(*world_, GetParam(), plainly);
  EXPECT_EQ(trained_bits(*world_, GetParam(), nested), expected);
  EXPECT_EQ(trained_bits(*world_, GetParam(), thrice_nested), expected);
}

// A weight of whole numbers, so that gradients are exact in whatever order they are added up; one step of SGD at
// rate 1.
at::Tensor weight_after_a_step(Group& world, int stage,
                               const std::function<at::Tensor(Engine&, const Part&)>& forward) {
  at::Generator random = at::detail::createCPUGenerator(3);
  const at::Tensor weight = at::empty({4, 4}).random_(-1, 2, random).to(at::kFloat).set_requires_grad(true);
  const Config config = Config::from_text(
      fmt::format(R"({{"train_micro_batch_size_per_gpu": 1, "optimizer": {{"type": "SGD", "params": {{"lr": 1}}}}, )"
                  R"("zero_optimization": {{"stage": {}, "stage3_param_persistence_threshold": 0}}}})",
                  stage));
  Engine engine({{"only", {{"weight", weight}}}}, config, world);
  const at::Tensor loss = forward(engine, [&](const at::Tensor& t) { return testing::own_linear(t, weight); });
  engine.backward(loss);
  engine.step();
  at::Tensor after;
  engine.with_gathered({"weight"}, Access::read, [&] { after = weight.detach().clone(); });
  return after;
}

TEST_P(Recompute, OfAWeightThatIsUsedBeforeAndAfterItLosesNoGradient) {
  const at::Tensor x = at::ones({2, 4});
  const at::Tensor expected = weight_after_a_step(*world_, GetParam(), [&](Engine& engine, const Part& multiply) {
    return engine.run(0, engine.run(0, engine.run(0, x, multiply), multiply), multiply).sum();
  });
  // Regions are repeated in backward, after these frames are gone: they own what they need.
  EXPECT_TRUE(expected.equal(weight_after_a_step(*world_, GetParam(), [&](Engine& engine, const Part& multiply) {
    at::Tensor y = engine.run(0, x, multiply);
    y = engine.recompute(y, [&engine, multiply](const at::Tensor& t) { return engine.run(0, t, multiply); });
    return engine.run(0, y, multiply).sum();
  })));
  // The same inside one use of the unit.
  EXPECT_TRUE(expected.equal(weight_after_a_step(*world_, GetParam(), [&](Engine& engine, const Part& multiply) {
    const auto around = [&](const at::Tensor& t) { return multiply(engine.recompute(multiply(t), multiply)); };
    return engine.run(0, x, around).sum();
  })));
}

TEST_P(Recompute, RunsTheForwardOnceMoreInBackwardAndNotInEvaluation) {
  MatrixEngine matrix(*world_, released_at(GetParam()));
  int runs = 0;
  const auto region = [&](const at::Tensor& x) {
    ++runs;
    return matrix.engine->run(1, x, [&](const at::Tensor& t) { return matrix.model.twice(t); });
  };
  const at::Tensor x = at::ones({2, kWidth});
  matrix.engine->evaluate([&] { matrix.engine->recompute(x, region); });
  EXPECT_EQ(runs, 1);
  const at::Tensor loss = matrix.engine->recompute(x, region).sum();
  EXPECT_EQ(runs, 2);
  matrix.engine->backward(loss);
  EXPECT_EQ(runs, 3);
}

TEST_P(Recompute, AnInputChangedInPlaceIsAnError) {
  MatrixEngine matrix(*world_, released_at(GetParam()));
  const at::Tensor x = at::ones({2, kWidth});
  const at::Tensor out = matrix.engine->recompute(x, [&](const at::Tensor& t) {
    return matrix.engine->run(1, t, [&](const at::Tensor& u) { return matrix.model.twice(u); });
  });
  x.add_(1);
  EXPECT_THAT(message_of([&] { matrix.engine->backward(out.sum()); }),
              HasSubstr("[recompute] an input of a recomputed region was changed in place"));
}

TEST_P(Recompute, ASecondBackwardThroughARegionIsAnError) {
  testing::RunOptions run = released_at(GetParam());
  run.accumulation = 2;
  MatrixEngine matrix(*world_, run);
  const at::Tensor out = matrix.engine->recompute(at::ones({2, kWidth}), [&](const at::Tensor& t) {
    return matrix.engine->run(1, t, [&](const at::Tensor& u) { return matrix.model.twice(u); });
  });
  matrix.engine->backward(out.sum());
  EXPECT_THAT(message_of([&] { matrix.engine->backward(out.sum()); }),
              HasSubstr("[recompute] backward runs a second time through a recomputed region"));
}

TEST_P(Recompute, HandsOnInputsAndTensorsWithoutGradients) {
  MatrixEngine matrix(*world_, released_at(GetParam()));
  at::Tensor x = at::ones({2, kWidth}).set_requires_grad(true);
  const at::Tensor ids = at::zeros({2}, at::kLong);
  const std::vector<at::Tensor> outputs = matrix.engine->recompute({x, ids, {}}, [&](const Engine::Tensors& inputs) {
    EXPECT_FALSE(inputs[2].defined());
    const at::Tensor y = matrix.engine->run(1, inputs[0], [&](const at::Tensor& t) { return matrix.model.twice(t); });
    return Engine::Tensors{inputs[0], inputs[1], y};
  });
  EXPECT_FALSE(outputs[1].requires_grad());
  EXPECT_TRUE(at::equal(outputs[1], ids));
  matrix.engine->backward((outputs[0] * 3).sum() + outputs[2].sum() * 0);
  EXPECT_EQ(x.grad().sum().item<float>(), 3 * 2 * kWidth);
}

TEST_P(Recompute, AnExceptionInTheRegionsForwardLeavesTrainingAsItWas) {
  MatrixEngine disturbed(*world_, released_at(GetParam()));
  MatrixEngine plain(*world_, released_at(GetParam()));
  for (int step = 0; step < 2; ++step) {
    const auto fails = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("stop"); };
    EXPECT_EQ(message_of([&] { disturbed.engine->recompute(at::ones({1}), fails); }), "stop");
    disturbed.train_step(step);
    plain.train_step(step);
  }
  EXPECT_EQ(disturbed.weights(), plain.weights());
}

namespace {

// Two units whose regions' inputs wait in host memory, with copies that come as late as they may. Freed memory of
// tensors is spoiled.
class RecomputeToHost : public ::testing::TestWithParam<int> {
 protected:
  RecomputeToHost() : model_(GetParam()), generator_(make_generator(at::kCPU, 1)) {
    queue_.streams = [] {
      return std::make_unique<testing::LateCopyStreams>(std::make_shared<testing::LateCopyStreams::Log>());
    };
    home_ = std::make_unique<HostInputs>(queue_, at::kCPU, ledger_);
  }

  at::Tensor region(const at::Tensor& x, const Part& part) {
    return recompute({model_.passes, generator_, home_.get()}, {x}, [part](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{part(inputs.at(0))};
    })[0];
  }
  at::Tensor use(int unit, const at::Tensor& x) {
    return region(x, [this, unit](const at::Tensor& t) { return model_.use(unit, t); });
  }
  // Units 0 and 1 in turn, `regions` of them; elementwise, so that each weight's gradient is known.
  at::Tensor chain(int regions) {
    at::Tensor x = at::full({3}, 5.0f).set_requires_grad(true);
    for (int i = 0; i < regions; ++i) x = use(i % 2, x);
    return x.sum();
  }
  // Of a product of `uses` of each unit: 5 * 2^uses * 3^uses, of which a weight has its share `uses` times.
  void expect_gradients(int uses, double times = 1) {
    const double product = 5 * std::pow(6.0, uses) * times;
    EXPECT_EQ(model_.gradient(0), std::vector<float>(3, static_cast<float>(product * uses / 2)));
    EXPECT_EQ(model_.gradient(1), std::vector<float>(3, static_cast<float>(product * uses / 3)));
  }

  testing::SpoilingAllocator allocator_;
  testing::TwoUnits model_;
  at::Generator generator_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  testing::FarQueue queue_;
  std::unique_ptr<HostInputs> home_;
};
INSTANTIATE_TEST_SUITE_P(Stages, RecomputeToHost, ::testing::Values(0, 2, 3));

}  // namespace

TEST_P(RecomputeToHost, GivesTheGradientsOfTheWholeGraphInTheSameHostMemory) {
  for (int pass = 0; pass < 3; ++pass) {
    model_.backward(chain(8));
    expect_gradients(4);
    EXPECT_EQ(ledger_->line(MemoryKind::host_inputs).peak, 8 * 3 * sizeof(float));
  }
}

TEST_P(RecomputeToHost, GivesThemAlsoOfARegionInsideARegion) {
  for (int pass = 0; pass < 2; ++pass) {
    at::Tensor x = at::full({3}, 5.0f).set_requires_grad(true);
    for (int i = 0; i < 3; ++i) {
      x = region(x, [this](const at::Tensor& t) { return use(1, use(0, t)); });
    }
    model_.backward(x.sum());
    expect_gradients(3);
  }
}

TEST_P(RecomputeToHost, AGraphThatIsDroppedAndAForwardThatThrowsLeaveTrainingAsItWas) {
  { const at::Tensor dropped = chain(6); }
  const auto fails = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("stop"); };
  EXPECT_EQ(message_of([&] { region(at::ones({3}).set_requires_grad(true), fails); }), "stop");
  model_.backward(chain(6));
  expect_gradients(3);
  EXPECT_EQ(ledger_->line(MemoryKind::host_inputs).peak, 6 * 3 * sizeof(float));
}

TEST_P(RecomputeToHost, AnInputChangedInPlaceIsAnError) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true) * 1;
  const at::Tensor out = use(1, use(0, x));
  {
    at::NoGradGuard without_graph;
    x.add_(1);
  }
  EXPECT_THAT(message_of([&] { model_.backward(out.sum()); }),
              HasSubstr("[recompute] an input of a recomputed region was changed in place"));
}

TEST_P(RecomputeToHost, EvaluationSendsNothing) {
  model_.passes.begin_evaluation();
  {
    at::NoGradGuard without_graph;
    use(1, use(0, at::ones({3})));
  }
  model_.passes.finish_evaluation();
  EXPECT_EQ(ledger_->line(MemoryKind::host_inputs).peak, 0u);
}

TEST_P(Recompute, InAnEngineOfTheHostTakesInputsOnTheHostAndMovesNothing) {
  Config config = testing::config_of(released_at(GetParam()), 1);
  MatrixEngine plain(*world_, config);
  config.inputs_on_host = true;
  MatrixEngine asked(*world_, config);
  for (int step = 0; step < 2; ++step) {
    plain.train_step(step, {.recompute = true});
    asked.train_step(step, {.recompute = true});
  }
  EXPECT_EQ(asked.weights(), plain.weights());
  EXPECT_EQ(asked.engine->meters().memory().host_activations, 0u);
}

}  // namespace shoal
