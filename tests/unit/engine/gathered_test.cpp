#include "engine/gathered.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/matrix_engine.h"

namespace shoal {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::kWidth;
using testing::MatrixEngine;
using testing::MatrixModel;
using testing::message_of;
using testing::on_threads;
using testing::released_at;
using testing::RunOptions;

namespace {

class Gathered : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, Gathered, ::testing::Range(0, 4));

}  // namespace

TEST_P(Gathered, ReadsTheValuesThatTheModelStartedWith) {
  for (int world = 1; world <= 3; ++world) {
    const std::vector<bool> equal = on_threads<bool>(world, [](Group& group) {
      MatrixEngine matrix(group, released_at(GetParam()));
      const MatrixModel original;
      bool same = true;
      matrix.engine->with_gathered(MatrixModel::names(), Access::read, [&] {
        const std::vector<at::Tensor> now = matrix.model.tensors();
        for (size_t i = 0; i < now.size(); ++i) same &= bytes_of(now[i]) == bytes_of(original.tensors()[i]);
      });
      return same;
    });
    EXPECT_EQ(equal, std::vector<bool>(static_cast<size_t>(world), true)) << "world " << world;
  }
}

TEST_P(Gathered, CountsItsMemoryWhileInsideAndGivesItBack) {
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine matrix(*group, released_at(GetParam()));
  const MemoryPlan held = matrix.engine->meters().memory().held;
  matrix.engine->with_gathered({"drop.w"}, Access::read, [&] {
    // The flat of the unit's trainable parameters: each begins at a multiple of 128 elements.
    const size_t flat_nbytes = (kWidth * kWidth + 64 + 128) * sizeof(float);
    EXPECT_EQ(matrix.engine->meters().memory().user_gathered, GetParam() == 3 ? flat_nbytes : 0);
    EXPECT_EQ(matrix.engine->meters().memory().held, held);
  });
  EXPECT_EQ(matrix.engine->meters().memory().user_gathered, 0u);
  EXPECT_EQ(message_of([&] { matrix.model.w.sum(); }).empty(), GetParam() < 3);
}

TEST_P(Gathered, WhatRank0WroteIsTheValueOnAllRanks) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto values = on_threads<std::string>(3, [&](Group& group) {
      RunOptions run = released_at(GetParam());
      run.precision = precision;
      MatrixEngine matrix(group, run);
      matrix.train_step(0);
      matrix.engine->with_gathered({"drop.w", "head.tied", "drop.none", "twice.shift", "twice.scale"}, Access::write,
                                   [&] {
                                     at::NoGradGuard without_graph;
                                     for (const at::Tensor& tensor :
                                          {matrix.model.w, matrix.model.wte, matrix.model.shift, matrix.model.scale}) {
                                       tensor.fill_(1.25 + group.rank());
                                     }
                                   });
      std::string read;
      matrix.engine->with_gathered({"drop.w", "wte", "twice.shift", "twice.scale"}, Access::read, [&] {
        for (const at::Tensor& tensor : {matrix.model.w, matrix.model.wte, matrix.model.shift, matrix.model.scale}) {
          EXPECT_TRUE(at::equal(tensor, at::full_like(tensor, 1.25)));
          read += bytes_of(tensor);
        }
      });
      return read;
    });
    EXPECT_EQ(values[1], values[0]);
    EXPECT_EQ(values[2], values[0]);
  }
}

// A weight that is written back as it is loses its remainder: it is exact from then on, at every stage alike.
TEST_P(Gathered, AWrittenWeightTrainsOnFromExactlyThatValue) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const auto trained = [&](int stage) {
      return on_threads<std::string>(2, [&](Group& group) {
        RunOptions run = released_at(stage);
        run.precision = precision;
        MatrixEngine matrix(group, run);
        matrix.train_step(0);
        matrix.engine->with_gathered(MatrixModel::names(), Access::write, [] {});
        for (int step = 1; step < 6; ++step) matrix.train_step(step);
        return matrix.weights();
      });
    };
    EXPECT_EQ(trained(GetParam())[0], trained(0)[1]);
  }
}

TEST_P(Gathered, ReadingDoesNotChangeTraining) {
  const std::unique_ptr<Group> group = make_single_group();
  RunOptions run = released_at(GetParam());
  run.precision = Precision::bf16;
  MatrixEngine read(*group, run);
  MatrixEngine plain(*group, run);
  for (int step = 0; step < 3; ++step) {
    read.weights();
    read.train_step(step);
    plain.train_step(step);
  }
  EXPECT_EQ(read.weights(), plain.weights());
}

TEST_P(Gathered, AnUnknownNameIsAnErrorThatKnowsTheNearest) {
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine matrix(*group, released_at(GetParam()));
  const auto gather = [&](const std::string& name) {
    return message_of([&] { matrix.engine->with_gathered({"wte", name}, Access::read, [] { FAIL(); }); });
  };
  EXPECT_THAT(gather("drop.gian"),
              HasSubstr("[with_gathered] there is no parameter drop.gian. Did you mean drop.gain?"));
  EXPECT_THAT(gather("lm_head_something_else"), HasSubstr("Use the names that the units were declared with"));
}

TEST_P(Gathered, AnExceptionInsideReleasesAndLeavesTheValues) {
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine matrix(*group, released_at(GetParam()));
  const std::string before = matrix.weights();
  EXPECT_EQ(message_of([&] {
              matrix.engine->with_gathered({"drop.w"}, Access::read, [] { throw std::runtime_error("stop"); });
            }),
            "stop");
  EXPECT_EQ(matrix.engine->meters().memory().user_gathered, 0u);
  EXPECT_EQ(matrix.weights(), before);
  EXPECT_TRUE(matrix.train_step(0).applied);
}

}  // namespace shoal
