// The reference updates against the textbook formulas in fp64, over twenty steps.
#include <gtest/gtest.h>

#include "unit/kernels/awkward.h"
#include "unit/kernels/textbook.h"

namespace shoal::kernels {
namespace {

constexpr int64_t kCount = 257;
constexpr int kSteps = 20;

const UpdateKernels& reference() { return kernels_of(Isa::reference).update; }

float gentle(std::mt19937& random) { return static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f; }

// Twenty steps of one optimizer, with the constants that each step has.
template <class Step>
void expect_textbook(Step step, const OptimizerConfig& config) {
  constexpr double kTolerance = 2e-6;
  std::vector<float> weight(kCount), first(kCount), second(kCount), grad(kCount);
  std::vector<Textbook> model(kCount);
  std::mt19937 random(3);
  for (int64_t i = 0; i < kCount; ++i) model[i].p = weight[i] = gentle(random);
  for (int number = 1; number <= kSteps; ++number) {
    step.set_constants(config, number);
    for (int64_t i = 0; i < kCount; ++i) {
      grad[i] = gentle(random);
      follow(step, config, number, grad[i], model[i]);
    }
    reference()(
        {.numel = kCount, .weight = weight.data(), .grad = grad.data(), .first = first.data(), .second = second.data()},
        step);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(weight[i], model[i].p, kTolerance) << i;
    EXPECT_NEAR(first[i], model[i].first, kTolerance) << i;
    EXPECT_NEAR(second[i], model[i].second, kTolerance) << i;
  }
}

TEST(UpdateReference, EveryOptimizerFollowsItsTextbook) {
  for (const OptimizerRow& row : kOptimizers) {
    EveryStep::call_for(row.kind, [&](auto step) {
      step.grad_scale = 0.5f;
      step.lr = 0.01f;
      const std::vector<OptimizerConfig> every = settings(step);
      for (size_t i = 0; i < every.size(); ++i) {
        for (const float decay : {0.0f, 0.1f}) {
          SCOPED_TRACE(::testing::Message() << row.name << ", settings " << i << ", decay " << decay);
          OptimizerConfig config = every[i];
          config.kind = row.kind;
          step.weight_decay = decay;
          expect_textbook(step, config);
        }
      }
    });
  }
}

TEST(UpdateReference, FirstMomentumStepDoesNotReadTheBuffer) {
  float weight = 1, grad = 0.5f, buffer = NAN;
  reference()({.numel = 1, .weight = &weight, .grad = &grad, .first = &buffer},
              SgdStep{.lr = 1, .momentum = 0.9f, .dampening = 0.5f, .first_step = true});
  EXPECT_EQ(buffer, 0.5f);
  EXPECT_EQ(weight, 0.5f);
}

TEST(UpdateReference, LionLeavesAWeightThatNeverHadAGradient) {
  float weight = 1, grad = 0, momentum = 0;
  reference()({.numel = 1, .weight = &weight, .grad = &grad, .first = &momentum}, LionStep{.lr = 0.5f});
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
      AdamStep constants{.grad_scale = 0.25f, .lr = 0.01f, .weight_decay = 0.1f};
      constants.set_constants({.eps = 1e-6}, step);
      reference()(s, constants);
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
