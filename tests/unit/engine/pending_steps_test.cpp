// See engine/pending_steps.h; a GPU that stands still meanwhile is in tests/cuda/step_later_test.cpp.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "training/matrix_engine.h"

namespace shoal {

using testing::config_of;
using ::testing::HasSubstr;
using testing::MatrixEngine;
using testing::message_of;
using testing::released_at;
using testing::RunOptions;

namespace {

class PendingStepsOfOneRank : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Group> world = make_single_group();
};
INSTANTIATE_TEST_SUITE_P(Stages, PendingStepsOfOneRank, ::testing::Range(0, 4));

TEST_P(PendingStepsOfOneRank, AStepMayBeReadWheneverSomebodyAsks) {
  RunOptions run = released_at(GetParam());
  run.precision = Precision::fp16;
  run.accumulation = 2;
  MatrixEngine at_once(*world, run), later(*world, run);
  std::vector<PendingStep> steps;
  std::vector<StepResult> expected;
  for (int micro = 0; micro < 8; ++micro) {
    const double factor = micro == 3 ? INFINITY : 1;
    at_once.engine->backward(at_once.loss(micro) * factor);
    expected.push_back(at_once.engine->step());
    later.engine->backward(later.loss(micro) * factor);
    steps.push_back(later.engine->step_later());
    EXPECT_TRUE(steps.back().known() || micro % 2 == 0);
  }
  EXPECT_EQ(later.engine->state().loss_scale(), at_once.engine->state().loss_scale());
  for (size_t micro = 1; micro < 8; micro += 2) {
    const StepResult& result = steps[micro].result();
    EXPECT_TRUE(result.boundary);
    EXPECT_EQ(result.applied, expected[micro].applied);
    EXPECT_EQ(result.grad_norm == result.grad_norm, expected[micro].grad_norm == expected[micro].grad_norm);
    EXPECT_EQ(result.loss_scale, expected[micro].loss_scale);
    EXPECT_EQ(result.applied_steps, expected[micro].applied_steps);
    EXPECT_EQ(result.overflow_unit, expected[micro].overflow_unit);
  }
  EXPECT_FALSE(steps[0].result().boundary);
  EXPECT_EQ(later.weights(), at_once.weights());
  EXPECT_EQ(later.engine->state().progress().applied_steps, 3);
}

TEST_P(PendingStepsOfOneRank, AStepThatNobodyReadCannotBeReadWithoutItsEngine) {
  std::optional<PendingStep> read, unread;
  {
    MatrixEngine matrix(*world, released_at(GetParam()));
    for (std::optional<PendingStep>* step : {&read, &unread}) {
      matrix.engine->backward(matrix.loss(0));
      *step = matrix.engine->step_later();
    }
    EXPECT_EQ(read->result().applied_steps, 1);
  }
  EXPECT_EQ(read->result().applied_steps, 1);
  EXPECT_FALSE(unread->known());
  EXPECT_THAT(message_of([&] { unread->result(); }), HasSubstr("[step] its result was not read"));
}

TEST_P(PendingStepsOfOneRank, AnErrorOfAStepThatNobodyReadsIsThrownAtALaterBoundary) {
  RunOptions run = released_at(GetParam());
  run.precision = Precision::fp16;
  Config config = config_of(run, 1);
  config.fp16.initial_scale_power = 0;
  MatrixEngine matrix(*world, config);
  matrix.engine->backward(matrix.loss(0) * INFINITY);
  const PendingStep step = matrix.engine->step_later();
  matrix.engine->backward(matrix.loss(1));
  EXPECT_THAT(message_of([&] { matrix.engine->step_later(); }), HasSubstr("[loss scale]"));
  EXPECT_THAT(message_of([&] { step.result(); }), HasSubstr("[loss scale]"));
}

TEST_P(PendingStepsOfOneRank, AMicroStepInsideAStepSaysWhatStoodThen) {
  RunOptions run = released_at(GetParam());
  run.accumulation = 2;
  MatrixEngine matrix(*world, run);
  matrix.engine->backward(matrix.loss(0));
  const PendingStep inside = matrix.engine->step_later();
  EXPECT_TRUE(inside.known());
  matrix.engine->backward(matrix.loss(1));
  EXPECT_EQ(matrix.engine->step().applied_steps, 1);
  EXPECT_EQ(inside.result().applied_steps, 0);
}

}  // namespace
}  // namespace shoal
