#include "engine/state_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "training/matrix_engine.h"

namespace shoal {

using testing::config_of;
using ::testing::HasSubstr;
using testing::MatrixEngine;
using testing::message_of;
using testing::on_threads;
using testing::released_at;
using testing::RunOptions;

namespace {

// Every element of every state by (parameter, state), as all ranks together own it; NaN where nobody owned one.
using WholeState = std::map<std::pair<std::string, StateKind>, std::vector<float>>;

int64_t numel_of(const ParamInfo& info) {
  int64_t numel = 1;
  for (const int64_t extent : info.shape) numel *= extent;
  return numel;
}

RunOptions run_of(int stage, Precision precision) {
  RunOptions run = released_at(stage);
  run.precision = precision;
  return run;
}

// Trains two steps and takes the state down.
WholeState train_and_read(int world, const RunOptions& run, std::vector<EngineProgress>* progress = nullptr) {
  WholeState whole;
  std::mutex mutex;
  if (progress != nullptr) progress->resize(static_cast<size_t>(world));
  on_threads<int>(world, [&](Group& group) {
    MatrixEngine trained(group, run);
    for (int step = 0; step < 2; ++step) trained.train_step(step);
    const std::lock_guard lock(mutex);
    for (const StateRun& owned : trained.engine->state().owned()) {
      const ParamInfo& info = trained.engine->state().params()[static_cast<size_t>(owned.param)];
      std::vector<float>& values = whole[{info.name, owned.kind}];
      values.resize(static_cast<size_t>(numel_of(info)), NAN);
      for (int64_t i = 0; i < owned.numel; ++i) {
        EXPECT_TRUE(std::isnan(values[static_cast<size_t>(owned.begin + i)])) << info.name << " is owned twice";
      }
      trained.engine->state().read(owned, values.data() + owned.begin);
    }
    if (progress != nullptr) (*progress)[static_cast<size_t>(group.rank())] = trained.engine->state().progress();
    return 0;
  });
  return whole;
}

void write_all(Engine& engine, const WholeState& whole, const EngineProgress& progress) {
  for (const StateRun& kept : engine.state().kept()) {
    const ParamInfo& info = engine.state().params()[static_cast<size_t>(kept.param)];
    engine.state().write(kept, whole.at({info.name, kept.kind}).data() + kept.begin);
  }
  engine.state().finish_restore(progress);
}

std::string text_of(const WholeState& whole) {
  std::string bytes;
  for (const auto& [key, values] : whole) {
    bytes += key.first;
    bytes += name_of(key.second);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace

TEST(StateAccess, RanksOwnEveryElementOnceAndTheSameBitsAtEveryStage) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const int world : {1, 2, 3}) {
      std::string expected;
      for (int stage = 0; stage <= 3; ++stage) {
        const WholeState whole = train_and_read(world, run_of(stage, precision));
        for (const auto& [key, values] : whole) {
          for (const float value : values) ASSERT_FALSE(std::isnan(value)) << key.first << " is not owned everywhere";
        }
        if (stage == 0) expected = text_of(whole);
        EXPECT_TRUE(text_of(whole) == expected) << "stage " << stage << ", world " << world;
      }
    }
  }
}

// A run that is taken down after two steps and put up in another engine, of any stage, goes on with the same bits.
TEST(StateAccess, ARestoredEngineGoesOnWithTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      std::vector<EngineProgress> progress;
      const WholeState whole = train_and_read(2, run_of(3, precision), &progress);
      const auto weights = on_threads<std::string>(2, [&](Group& group) {
        MatrixEngine restored(group, run_of(stage, precision));
        write_all(*restored.engine, whole, progress[static_cast<size_t>(group.rank())]);
        EXPECT_EQ(restored.engine->state().progress().applied_steps, 2);
        for (int step = 2; step < 4; ++step) restored.train_step(step);
        return restored.weights();
      });
      const auto expected = on_threads<std::string>(2, [&](Group& group) {
        MatrixEngine straight(group, run_of(stage, precision));
        for (int step = 0; step < 4; ++step) straight.train_step(step);
        return straight.weights();
      });
      EXPECT_TRUE(weights == expected) << "stage " << stage;
    }
  }
}

TEST(StateAccess, AnotherWorldSizeHoldsTheSameValues) {
  std::vector<EngineProgress> progress;
  const WholeState whole = train_and_read(3, run_of(3, Precision::bf16), &progress);
  for (const int world : {1, 2, 4}) {
    WholeState again;
    std::mutex mutex;
    on_threads<int>(world, [&](Group& group) {
      MatrixEngine restored(group, run_of(group.size() == 1 ? 0 : 3, Precision::bf16));
      EngineProgress no_random = progress[0];
      no_random.random_state.clear();
      write_all(*restored.engine, whole, no_random);
      const std::lock_guard lock(mutex);
      for (const StateRun& owned : restored.engine->state().owned()) {
        const ParamInfo& info = restored.engine->state().params()[static_cast<size_t>(owned.param)];
        std::vector<float>& values = again[{info.name, owned.kind}];
        values.resize(static_cast<size_t>(numel_of(info)), NAN);
        restored.engine->state().read(owned, values.data() + owned.begin);
      }
      return 0;
    });
    EXPECT_TRUE(text_of(again) == text_of(whole)) << "world " << world;
  }
}

TEST(StateAccess, TiedNamesAreAliasesOfOneParameter) {
  const std::unique_ptr<Group> world = make_single_group();
  MatrixEngine matrix(*world, released_at(3));
  int aliases = 0;
  for (const ParamInfo& info : matrix.engine->state().params()) aliases += static_cast<int>(info.aliases.size());
  EXPECT_GT(aliases, 0);
}

TEST(StateAccess, TheStateIsReadBetweenPassesOnly) {
  const std::unique_ptr<Group> world = make_single_group();
  MatrixEngine matrix(*world, released_at(3));
  const at::Tensor loss = matrix.loss(0);
  std::vector<float> values(1 << 16);
  const StateRun run = matrix.engine->state().owned().at(0);
  EXPECT_THAT(message_of([&] { matrix.engine->state().read(run, values.data()); }),
              HasSubstr("[read_state] a pass is open: its forward ran and its backward did not"));
}

// Reads everything between the micro-steps of each step, or not; the bytes of the weights after three steps.
std::string accumulate(Group& group, const RunOptions& run, bool reads) {
  MatrixEngine matrix(group, run);
  const std::vector<StateRun> owned = matrix.engine->state().owned();
  const auto read = [&](const StateRun& part) {
    std::vector<float> values(static_cast<size_t>(part.numel));
    matrix.engine->state().read(part, values.data());
    return values;
  };
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> before = reads ? read(owned[0]) : std::vector<float>();
    for (int64_t micro_step = 0; micro_step < run.accumulation; ++micro_step) {
      matrix.engine->backward(matrix.loss(step * run.accumulation + micro_step));
      EXPECT_EQ(matrix.engine->state().accumulated(), micro_step + 1);
      for (const StateRun& part : owned) {
        if (!reads) continue;
        const std::vector<float> values = read(part);
        if (&part == &owned[0]) {
          EXPECT_EQ(values, before) << "it is that of the last step";
        }
      }
      matrix.engine->step();
    }
    EXPECT_EQ(matrix.engine->state().accumulated(), 0);
  }
  return matrix.weights();
}

TEST(StateAccess, ReadingBetweenMicroStepsChangesNothing) {
  for (const int world : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      RunOptions run = run_of(stage, Precision::bf16);
      run.accumulation = 3;
      EXPECT_EQ(on_threads<std::string>(world, [&](Group& group) { return accumulate(group, run, true); }),
                on_threads<std::string>(world, [&](Group& group) { return accumulate(group, run, false); }))
          << "stage " << stage;
    }
  }
}

// Norm and weights of a step whose gradients were written over.
TEST(StateAccess, WrittenGradientsAreTheStepsAtEveryStage) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const int world : {1, 2, 3}) {
      std::string expected;
      for (int stage = 0; stage <= 3; ++stage) {
        const auto weights = on_threads<std::string>(world, [&](Group& group) {
          MatrixEngine matrix(group, run_of(stage, precision));
          matrix.engine->backward(matrix.loss(0));
          double squares = 0;
          for (const ParamInfo& info : matrix.engine->state().params()) {
            if (info.trainable) squares += 4.0 * static_cast<double>(numel_of(info));
          }
          for (const StateRun& kept : matrix.engine->state().kept_gradients()) {
            std::vector<float> values;
            for (int64_t i = 0; i < kept.numel; ++i) values.push_back((kept.begin + i) % 2 == 0 ? 2.0f : -2.0f);
            matrix.engine->state().write_gradient(kept, values.data());
          }
          EXPECT_NEAR(matrix.engine->step().grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
          return matrix.weights();
        });
        if (stage == 0) expected = weights[0];
        for (const std::string& found : weights) EXPECT_TRUE(found == expected) << "stage " << stage << " of " << world;
      }
    }
  }
}

TEST(StateAccess, GradientsAreWrittenBetweenBackwardAndStep) {
  const std::unique_ptr<Group> world = make_single_group();
  MatrixEngine matrix(*world, released_at(3));
  const auto refused = HasSubstr("[gradients] there are none: they are complete after the backward that ends a step");
  EXPECT_THAT(message_of([&] { matrix.engine->state().kept_gradients(); }), refused);
  matrix.engine->backward(matrix.loss(0));
  const StateRun part = matrix.engine->state().kept_gradients().at(0);
  const std::vector<float> zeros(static_cast<size_t>(part.numel));
  matrix.engine->state().write_gradient(part, zeros.data());
  matrix.engine->step();
  EXPECT_THAT(message_of([&] { matrix.engine->state().write_gradient(part, zeros.data()); }), refused);
}

TEST(StateAccess, GradientsAreReadBetweenBackwardAndStepAndInsideAnUpdateFromOutside) {
  const std::unique_ptr<Group> world = make_single_group();
  MatrixEngine matrix(*world, released_at(3));
  const auto refused = HasSubstr("[gradients] there are none: they are complete after the backward that ends a step");
  std::vector<float> before(1 << 16), inside(1 << 16);
  matrix.engine->backward(matrix.loss(0));
  const StateRun part = matrix.engine->state().owned_gradients().at(0);
  matrix.engine->state().read_gradient(part, before.data());
  matrix.engine->step([&](double /*grad_scale*/) { matrix.engine->state().read_gradient(part, inside.data()); });
  EXPECT_EQ(inside, before);
  EXPECT_THAT(message_of([&] { matrix.engine->state().read_gradient(part, before.data()); }), refused);
  matrix.engine->backward(matrix.loss(1));
  EXPECT_THROW(matrix.engine->step([](double) { throw std::runtime_error("mine"); }), std::exception);
  EXPECT_NE(message_of([&] { matrix.engine->state().read_gradient(part, before.data()); }), "");
}

// Halves all moments before the second step's pass, or between its backward and its step.
std::string halved(Group& group, const RunOptions& run, bool after_backward) {
  MatrixEngine matrix(group, run);
  matrix.train_step(0);
  const auto halve = [&] {
    std::vector<float> values(1 << 16);
    for (const StateRun& kept : matrix.engine->state().kept()) {
      if (kept.kind == StateKind::weight) continue;  // the backward's gradients are of those of before
      matrix.engine->state().read(kept, values.data());
      for (float& value : values) value *= 0.5f;
      matrix.engine->state().edit(kept, values.data());
    }
    matrix.engine->state().finish_edits();
  };
  if (!after_backward) halve();
  matrix.engine->backward(matrix.loss(1));
  if (after_backward) {
    EXPECT_THAT(message_of([&] {
                  std::vector<float> values(1 << 16);
                  matrix.engine->state().write(matrix.engine->state().kept().at(0), values.data());
                }),
                HasSubstr("[write_state] a step is under way"));
    halve();
  }
  matrix.engine->step();
  return matrix.weights();
}

TEST(StateAccess, EditsBetweenBackwardAndStepAreWhatTheStepIsTakenFrom) {
  for (int stage = 0; stage <= 3; ++stage) {
    const RunOptions run = run_of(stage, Precision::bf16);
    EXPECT_EQ(on_threads<std::string>(2, [&](Group& group) { return halved(group, run, true); }),
              on_threads<std::string>(2, [&](Group& group) { return halved(group, run, false); }))
        << "stage " << stage;
  }
}

}  // namespace shoal
