// The reference updates against the textbook formulas in fp64, over twenty steps.
#include <gtest/gtest.h>

#include <functional>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

constexpr int64_t kCount = 257;
constexpr int kSteps = 20;

// One element's fp64 weight and states, and how a formula moves them.
struct Textbook {
  double p = 0, first = 0, second = 0;
};
using Rule = std::function<void(Textbook&, double grad, int step)>;
using Run = std::function<void(const Segment&, int step)>;

const UpdateKernels& reference() { return kernels_of(Isa::reference).update; }

float gentle(std::mt19937& random) { return static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f; }

void follows(const Run& run, const Rule& rule, double tolerance = 2e-6) {
  std::vector<float> weight(kCount), first(kCount), second(kCount), grad(kCount);
  std::vector<Textbook> model(kCount);
  std::mt19937 random(3);
  for (int64_t i = 0; i < kCount; ++i) model[i].p = weight[i] = gentle(random);
  for (int step = 1; step <= kSteps; ++step) {
    for (int64_t i = 0; i < kCount; ++i) {
      grad[i] = gentle(random);
      rule(model[i], grad[i], step);
    }
    run({.numel = kCount, .weight = weight.data(), .grad = grad.data(), .first = first.data(), .second = second.data()},
        step);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(weight[i], model[i].p, tolerance) << i;
    EXPECT_NEAR(first[i], model[i].first, tolerance) << i;
    EXPECT_NEAR(second[i], model[i].second, tolerance) << i;
  }
}

AdamStep adam_step(int step, bool decoupled) {
  AdamStep s{.grad_scale = 0.25f,
             .lr = 0.01f,
             .beta1 = 0.9f,
             .beta2 = 0.999f,
             .eps = 1e-6f,
             .weight_decay = 0.1f,
             .decoupled = decoupled};
  s.inv_bias1 = static_cast<float>(1 / (1 - std::pow(double(s.beta1), step)));
  s.inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(double(s.beta2), step)));
  return s;
}

void adam_rule(Textbook& t, double grad, int step, bool decoupled) {
  const AdamStep s = adam_step(step, decoupled);
  double g = grad * s.grad_scale;
  if (decoupled) t.p -= double(s.lr) * s.weight_decay * t.p;
  if (!decoupled) g += s.weight_decay * t.p;
  t.first = s.beta1 * t.first + (1 - double(s.beta1)) * g;
  t.second = s.beta2 * t.second + (1 - double(s.beta2)) * g * g;
  const double mean = t.first / (1 - std::pow(double(s.beta1), step));
  const double square = t.second / (1 - std::pow(double(s.beta2), step));
  t.p -= s.lr * mean / (std::sqrt(square) + s.eps);
}

TEST(UpdateReference, AdamWFollowsTheTextbook) {
  follows([](const Segment& s, int step) { reference().adam(s, adam_step(step, true)); },
          [](Textbook& t, double g, int step) { adam_rule(t, g, step, true); });
}

TEST(UpdateReference, AdamWithL2DecayFollowsTheTextbook) {
  follows([](const Segment& s, int step) { reference().adam(s, adam_step(step, false)); },
          [](Textbook& t, double g, int step) { adam_rule(t, g, step, false); });
}

void follows_sgd(SgdStep settings) {
  follows(
      [=](const Segment& s, int step) {
        SgdStep now = settings;
        now.first_step = step == 1;
        reference().sgd(s, now);
      },
      [=](Textbook& t, double grad, int step) {
        double g = grad * settings.grad_scale + settings.weight_decay * t.p;
        if (settings.momentum != 0) {
          t.first = step == 1 ? g : settings.momentum * t.first + (1 - double(settings.dampening)) * g;
          g = settings.nesterov ? g + settings.momentum * t.first : t.first;
        }
        t.p -= settings.lr * g;
      });
}

TEST(UpdateReference, SgdFollowsTheTextbook) {
  follows_sgd({.grad_scale = 0.5f, .lr = 0.05f, .weight_decay = 0.01f});
  follows_sgd({.grad_scale = 0.5f, .lr = 0.05f, .momentum = 0.9f});
  follows_sgd({.lr = 0.05f, .momentum = 0.9f, .dampening = 0.3f, .weight_decay = 0.01f});
  follows_sgd({.lr = 0.05f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true});
}

TEST(UpdateReference, FirstMomentumStepDoesNotReadTheBuffer) {
  float weight = 1, grad = 0.5f, buffer = NAN;
  reference().sgd({.numel = 1, .weight = &weight, .grad = &grad, .first = &buffer},
                  {.lr = 1, .momentum = 0.9f, .dampening = 0.5f, .first_step = true});
  EXPECT_EQ(buffer, 0.5f);
  EXPECT_EQ(weight, 0.5f);
}

TEST(UpdateReference, AdagradFollowsTheTextbook) {
  const AdagradStep settings{.grad_scale = 0.5f, .lr = 0.05f, .eps = 1e-6f, .weight_decay = 0.01f};
  follows([=](const Segment& s, int) { reference().adagrad(s, settings); },
          [=](Textbook& t, double grad, int) {
            const double g = grad * settings.grad_scale + settings.weight_decay * t.p;
            t.first += g * g;
            t.p -= settings.lr * g / (std::sqrt(t.first) + settings.eps);
          });
}

TEST(UpdateReference, LionFollowsTheTextbook) {
  const LionStep settings{.grad_scale = 0.5f, .lr = 0.01f, .weight_decay = 0.1f};
  follows([=](const Segment& s, int) { reference().lion(s, settings); },
          [=](Textbook& t, double grad, int) {
            const double g = grad * settings.grad_scale;
            const double c = settings.beta1 * t.first + (1 - double(settings.beta1)) * g;
            t.first = settings.beta2 * t.first + (1 - double(settings.beta2)) * g;
            t.p -= double(settings.lr) * settings.weight_decay * t.p;
            t.p -= settings.lr * static_cast<double>((c > 0) - (c < 0));
          });
}

TEST(UpdateReference, LionLeavesAWeightThatNeverHadAGradient) {
  float weight = 1, grad = 0, momentum = 0;
  reference().lion({.numel = 1, .weight = &weight, .grad = &grad, .first = &momentum}, {.lr = 0.5f});
  EXPECT_EQ(weight, 1.0f);
}

// However the master is kept, its fp32 value takes the same path, and the low-precision weight is its rounding.
TEST(UpdateReference, EveryMasterKindHoldsTheSameValue) {
  std::vector<float> plain(kCount), full_bf16(kCount), full_f16(kCount), grad(kCount), joined(kCount);
  std::vector<uint16_t> split_high(kCount), split_low(kCount), bf16(kCount), f16(kCount);
  std::vector<float> m[4], v[4];
  std::mt19937 random(4);
  for (float& value : plain) value = gentle(random);
  full_bf16 = full_f16 = plain;
  kernels_of(Isa::reference).convert.split(plain.data(), split_high.data(), split_low.data(), kCount);
  for (auto* states : {m, v}) std::fill_n(states, 4, std::vector<float>(kCount));
  for (int step = 1; step <= kSteps; ++step) {
    for (float& value : grad) value = gentle(random);
    Segment segments[4] = {
        {.weight = plain.data()},
        {.weight = split_high.data(),
         .weight_dtype = DType::bf16,
         .master_kind = Master::remainder,
         .master = split_low.data()},
        {.weight = bf16.data(), .weight_dtype = DType::bf16, .master_kind = Master::full, .master = full_bf16.data()},
        {.weight = f16.data(), .weight_dtype = DType::f16, .master_kind = Master::full, .master = full_f16.data()}};
    for (int k = 0; k < 4; ++k) {
      Segment& s = segments[k];
      s.numel = kCount;
      s.grad = grad.data();
      s.first = m[k].data();
      s.second = v[k].data();
      reference().adam(s, adam_step(step, true));
    }
  }
  kernels_of(Isa::reference).convert.join(split_high.data(), split_low.data(), joined.data(), kCount);
  EXPECT_EQ(joined, plain);
  EXPECT_EQ(full_bf16, plain);
  EXPECT_EQ(full_f16, plain);
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(bf16[i], to_bf16(plain[i]));
    EXPECT_EQ(f16[i], to_f16(plain[i]));
    EXPECT_EQ(split_high[i], split_weight(plain[i]));
  }
}

}  // namespace
}  // namespace shoal::kernels
