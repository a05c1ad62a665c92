// What a whole model does is in tests/ranks.
#include "engine/passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "unit/engine/two_units.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TwoUnits;

TEST(Passes, AUnitIsReadableBetweenEnterAndExitOnly) {
  TwoUnits model(3);
  EXPECT_FALSE(model.is_readable(0));
  model.passes.enter(0, {});
  EXPECT_TRUE(model.is_readable(0));
  EXPECT_FALSE(model.is_readable(1));
  model.passes.exit(0, {});
  EXPECT_FALSE(model.is_readable(0));
}

TEST(Passes, GradientsOfEveryStageAreThoseOfTheWholeGraph) {
  for (int stage = 0; stage <= 3; ++stage) {
    TwoUnits model(stage);
    for (int pass = 0; pass < 3; ++pass) {
      model.backward(model.use(1, model.use(0, at::ones({3}) * 5)).sum());
      EXPECT_EQ(model.gradient(0), std::vector<float>(3, 15)) << "stage " << stage;
      EXPECT_EQ(model.gradient(1), std::vector<float>(3, 10)) << "stage " << stage;
      EXPECT_TRUE(model.passes.between_passes());
    }
  }
}

TEST(Passes, AUnitThatIsNotUsedHasAGradientOfZero) {
  for (int stage = 0; stage <= 3; ++stage) {
    TwoUnits model(stage);
    model.backward(model.use(1, model.use(0, at::ones({3}))).sum());
    for (int pass = 0; pass < 2; ++pass) {
      model.backward(model.use(1, at::ones({3})).sum());
      EXPECT_EQ(model.gradient(0), std::vector<float>(3, 0)) << "stage " << stage;
      EXPECT_EQ(model.gradient(1), std::vector<float>(3, 1)) << "stage " << stage;
    }
  }
}

TEST(Passes, ALossWithoutAnyUnitReducesZeros) {
  for (int stage = 0; stage <= 3; ++stage) {
    TwoUnits model(stage);
    at::Tensor x = at::ones({1}).set_requires_grad(true);
    model.backward(x * 2);
    EXPECT_EQ(model.gradient(1), std::vector<float>(3, 0));
    model.backward(model.use(1, model.use(0, at::ones({3}))).sum());
    EXPECT_EQ(model.gradient(1), std::vector<float>(3, 2));
  }
}

TEST(Passes, AUnitUsedTwiceGetsTheSumOfBothUses) {
  for (int stage = 0; stage <= 3; ++stage) {
    TwoUnits model(stage);
    for (int pass = 0; pass < 2; ++pass) {
      model.backward(model.use(0, model.use(1, model.use(0, at::ones({3})))).sum());
      EXPECT_EQ(model.gradient(0), std::vector<float>(3, 12));
      EXPECT_EQ(model.gradient(1), std::vector<float>(3, 4));
    }
  }
}

TEST(Passes, NothingStaysGatheredAfterAPass) {
  TwoUnits model(3);
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor y = model.use(0, at::ones({3}));
    const at::Tensor unused = model.use(1, y);  // its backward never runs
    model.backward(y.sum());
    EXPECT_FALSE(model.is_readable(0));
    EXPECT_FALSE(model.is_readable(1));
    EXPECT_EQ(model.gradient(1), std::vector<float>(3, 0));
  }
}

TEST(Passes, EvaluationLeavesNoTraceInTheGraph) {
  TwoUnits model(3);
  for (int pass = 0; pass < 2; ++pass) {
    {
      const at::NoGradGuard without_graph;
      model.passes.begin_evaluation();
      EXPECT_EQ(model.use(1, model.use(0, at::ones({3}))).sum().item<float>(), 18);
      model.passes.finish_evaluation();
    }
    EXPECT_FALSE(model.is_readable(1));
    EXPECT_TRUE(model.passes.between_passes());
  }
}

TEST(Passes, EventsOutOfPlaceAreErrors) {
  TwoUnits model(3);
  {
    const at::NoGradGuard without_graph;
    EXPECT_THAT(message_of([&] { model.use(0, at::ones({3})); }), HasSubstr("[unit u0] is used without gradients"));
  }
  EXPECT_THAT(message_of([&] { model.passes.take_gradient(1, 0, at::ones({3})); }),
              HasSubstr("[unit u1] a gradient came outside Engine::backward"));
  model.use(0, at::ones({3}));
  EXPECT_THAT(message_of([&] { model.passes.begin_evaluation(); }), HasSubstr("[evaluation] a training pass is open"));
}

// A parameter used where no use of its unit is seen.
TEST(Passes, AUnitThatIsNeverEnteredIsReducedWhenItsGradientIsIn) {
  for (int stage = 0; stage <= 2; ++stage) {
    TwoUnits model(stage);
    for (int pass = 0; pass < 3; ++pass) {
      const at::Tensor x = model.use(1, at::ones({3}) * 5);
      model.backward((x * model.params[0] * model.params[0]).sum());
      EXPECT_EQ(model.gradient(0), std::vector<float>(3, 60)) << "stage " << stage;  // 2 * 15 * 2
      EXPECT_EQ(model.gradient(1), std::vector<float>(3, 20)) << "stage " << stage;
    }
  }
}

// Nobody said that one graph is all: nothing may be reduced before the end.
TEST(Passes, WithoutARootSeveralGraphsAddUp) {
  for (int stage = 0; stage <= 2; ++stage) {
    TwoUnits model(stage);
    for (int pass = 0; pass < 2; ++pass) {
      const at::Tensor x = model.use(1, model.use(0, at::ones({3})));
      const at::Tensor y = model.use(0, at::ones({3}));
      model.passes.begin_backward();
      torch::autograd::backward({x.sum()}, {});
      torch::autograd::backward({y.sum()}, {});
      model.passes.finish_backward();
      model.gradients.wait();
      EXPECT_EQ(model.gradient(0), std::vector<float>(3, 4)) << "stage " << stage;
      EXPECT_EQ(model.gradient(1), std::vector<float>(3, 2)) << "stage " << stage;
    }
  }
}

}  // namespace shoal
