// LAMB through engines: its textbook, and the same bits at every number of ranks, stage and cut.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

constexpr size_t kParams = 5;
constexpr int kUnitOf[kParams] = {0, 0, 1, 1, 2};
int64_t numel_of(size_t param, bool large) {
  constexpr int64_t kNumels[kParams] = {20'001, 3, 5'000, 130, 77};
  return param == 0 && large ? 1'300'000 : kNumels[param];  // more than goes through the scratch memory at one time
}

// Few bits, so that the mean of equal gradients over ranks is exact.
std::vector<float> draw(int64_t numel, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) {
    const int value = static_cast<int>(random() % 255) - 127;
    values.push_back(std::ldexp(static_cast<float>(value), -6 - static_cast<int>(seed % 3)));
  }
  return values;
}
std::vector<float> weight_of(size_t param, bool large) {
  const int64_t numel = numel_of(param, large);
  if (param == 4) return std::vector<float>(static_cast<size_t>(numel), 0.0f);  // no norm: its ratio is 1
  return draw(numel, 10 + param);
}
std::vector<float> gradient_of(size_t param, int step, bool large) {
  return draw(numel_of(param, large), 100 + 10 * static_cast<uint64_t>(step) + param);
}
at::Tensor tensor_of(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}).clone();
}

struct LambRun {
  int stage = 0;
  Precision precision = Precision::fp32;
  OptimizerConfig optimizer = {.kind = OptimizerKind::lamb, .lr = 0.01, .eps = 1e-6, .weight_decay = 0.1};
  int first_step = 0, steps = 3;
  bool large = false;
  std::string load_from = {}, save_to = {};  // checkpoints; "": none
};

Config config_of_run(const LambRun& run, int world) {
  RunOptions options;
  options.stage = run.stage;
  options.precision = run.precision;
  options.persistence_threshold = 100;
  options.clip = false;
  Config config = config_of(options, world);
  config.optimizer = run.optimizer;
  return config;
}

std::vector<std::vector<float>> trained(int world, const LambRun& run) {
  return on_threads<std::vector<std::vector<float>>>(world, [&](Group& group) {
    at::set_num_threads(1);
    std::vector<at::Tensor> weights;
    std::vector<Unit> units(3);
    std::vector<std::string> names;
    for (size_t unit = 0; unit < units.size(); ++unit) units[unit].name = "u" + std::to_string(unit);
    for (size_t param = 0; param < kParams; ++param) {
      weights.push_back(tensor_of(weight_of(param, run.large)).set_requires_grad(true));
      names.push_back("p" + std::to_string(param));
      units[static_cast<size_t>(kUnitOf[param])].params.push_back({names.back(), weights.back()});
    }
    Engine engine(units, config_of_run(run, world), group);
    if (!run.load_from.empty()) load_checkpoint(engine, group, run.load_from);
    for (int step = run.first_step; step < run.first_step + run.steps; ++step) {
      at::Tensor loss = at::empty({}).fill_(0.0);
      for (int unit = 0; unit < 3; ++unit) {
        loss = engine.run(unit, loss, [&](const at::Tensor& before) {
          at::Tensor sum = before;
          for (size_t param = 0; param < kParams; ++param) {
            if (kUnitOf[param] != unit) continue;
            sum = sum + (weights[param].to(at::kFloat) * tensor_of(gradient_of(param, step, run.large))).sum();
          }
          return sum;
        });
      }
      engine.backward(loss);
      EXPECT_TRUE(engine.step().applied);
    }
    if (!run.save_to.empty()) save_checkpoint(engine, group, {run.save_to, run.steps, 0, {}});
    std::vector<std::vector<float>> found;
    engine.with_gathered(names, Access::read, [&] {
      for (const at::Tensor& weight : weights) {
        const at::Tensor values = weight.detach().to(at::kFloat).contiguous();
        found.emplace_back(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
      }
    });
    return found;
  })[0];
}

// As DeepSpeed's FusedLamb has it, in fp64.
std::vector<double> textbook(size_t param, const LambRun& run) {
  const OptimizerConfig& c = run.optimizer;
  const std::vector<float> first_weight = weight_of(param, run.large);
  std::vector<double> w(first_weight.begin(), first_weight.end()), m(w.size(), 0.0), v(w.size(), 0.0), u(w.size());
  for (int step = 0; step < run.steps; ++step) {
    const std::vector<float> g = gradient_of(param, step, run.large);
    double weights = 0, updates = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = c.beta1 * m[i] + (1 - c.beta1) * g[i];
      v[i] = c.beta2 * v[i] + (1 - c.beta2) * g[i] * g[i];
      u[i] = m[i] / (c.eps_inside_sqrt ? std::sqrt(v[i] + c.eps) : std::sqrt(v[i]) + c.eps) + c.weight_decay * w[i];
      weights += w[i] * w[i];
      updates += u[i] * u[i];
    }
    double ratio = 1;
    if (weights > 0 && updates > 0) ratio = std::min(std::max(std::sqrt(weights / updates), c.min_coeff), c.max_coeff);
    double rate = c.lr;
    if (c.bias_correction) rate *= std::sqrt(1 - std::pow(c.beta2, step + 1)) / (1 - std::pow(c.beta1, step + 1));
    for (size_t i = 0; i < w.size(); ++i) w[i] -= rate * ratio * u[i];
  }
  return w;
}

void expect_textbook(int world, const LambRun& run) {
  const std::vector<std::vector<float>> found = trained(world, run);
  for (size_t param = 0; param < kParams; ++param) {
    const std::vector<double> expected = textbook(param, run);
    const std::vector<float> before = weight_of(param, run.large);
    for (size_t at = 0; at < expected.size(); at += 7) {
      ASSERT_NEAR(found[param][at], expected[at], 2e-5 * (std::abs(expected[at] - before[at]) + 0.05))
          << "parameter " << param << ", element " << at;
    }
  }
}

TEST(Lamb, FollowsItsTextbook) {
  std::vector<OptimizerConfig> settings(6, LambRun().optimizer);
  settings[1].bias_correction = false;
  settings[2].eps_inside_sqrt = true;
  settings[3].max_coeff = 0.02;  // below every ratio
  settings[4].min_coeff = 5;     // above every ratio
  settings[5].weight_decay = 0;
  for (size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "settings " << i);
    expect_textbook(i % 2 == 0 ? 1 : 2, {.optimizer = settings[i]});
  }
}

TEST(Lamb, HasTheSameBitsAtEveryNumberOfRanksAndStage) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    LambRun run{.precision = precision};
    const std::vector<std::vector<float>> one = trained(1, run);
    for (const int world : {1, 2, 3, 4}) {
      for (const int stage : {0, 1, 2, 3}) {
        run.stage = stage;
        EXPECT_EQ(trained(world, run), one) << world << " ranks, stage " << stage << ", " << name_of(precision);
      }
    }
  }
}

TEST(Lamb, GoesOnAtAnotherNumberOfRanksAsIfItHadNeverStopped) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const TempFolder first, second;
    trained(3, {.stage = 3, .precision = precision, .steps = 2, .save_to = first.path()});
    trained(2, {.stage = 1,
                .precision = precision,
                .first_step = 2,
                .steps = 1,
                .load_from = first.path(),
                .save_to = second.path()});
    EXPECT_EQ(trained(4, {.stage = 2, .precision = precision, .first_step = 3, .steps = 2, .load_from = second.path()}),
              trained(1, {.precision = precision, .steps = 5}));
  }
}

TEST(Lamb, ALargeParameterGoesThroughTheScratchMemoryInPieces) {
  const LambRun run{.steps = 2, .large = true};
  expect_textbook(1, run);
  LambRun sharded = run;
  sharded.stage = 3;
  EXPECT_EQ(trained(3, sharded), trained(1, run));
}

}  // namespace
}  // namespace shoal::testing
