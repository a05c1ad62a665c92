#include "optim/lone_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/host_queue.h"
#include "kernels/convert.h"

namespace shoal {
namespace {

constexpr int64_t kLoneNumel = 2500;  // more than what is as_floats at a time, and no multiple of it

std::vector<float> waves(int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < kLoneNumel; ++i) values.push_back(std::sin(static_cast<float>(i * 7 + seed)));
  return values;
}

std::vector<std::byte> as_bytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * nbytes_of(dtype));
  kernels::convert(values.data(), DType::f32, bytes.data(), dtype, kLoneNumel);
  return bytes;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(kLoneNumel);
  kernels::convert(bytes.data(), dtype, values.data(), DType::f32, kLoneNumel);
  return values;
}

struct LoneBytes {
  std::vector<std::byte> weight, grad, first, second;
};

LoneBytes lone_tensors(DType dtype, DType state_dtype) {
  const std::vector<float> zeros(kLoneNumel, 0.25f);
  return {as_bytes(waves(1), dtype), as_bytes(waves(2), dtype), as_bytes(zeros, state_dtype),
          as_bytes(zeros, state_dtype)};
}

void update_lone(LoneBytes& tensors, DType dtype, DType state_dtype, OptimizerKind kind,
                 const ParallelFor& parallel_for) {
  OptimizerConfig config;
  config.kind = kind;
  StepNumbers numbers;
  numbers.step = 3;
  numbers.lrs = {0.01};
  numbers.weight_decays = {0.1};
  LoneTensor tensor{kLoneNumel,
                    tensors.weight.data(),
                    dtype,
                    tensors.grad.data(),
                    dtype,
                    tensors.first.data(),
                    optimizer_row(kind).states() > 1 ? tensors.second.data() : nullptr,
                    state_dtype};
  update_alone(tensor, group_steps(config, numbers), parallel_for);
}

TEST(LoneUpdate, SixteenBitsAreThoseOfFp32RoundedOnce) {
  for (const OptimizerRow& row : kOptimizers)
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const DType state_dtype : {DType::f32, dtype}) {
        LoneBytes small = lone_tensors(dtype, state_dtype);
        LoneBytes wide{as_bytes(as_floats(small.weight, dtype), DType::f32),
                       as_bytes(as_floats(small.grad, dtype), DType::f32),
                       as_bytes(as_floats(small.first, state_dtype), DType::f32),
                       as_bytes(as_floats(small.second, state_dtype), DType::f32)};
        update_lone(small, dtype, state_dtype, row.kind, in_one_span);
        update_lone(wide, DType::f32, DType::f32, row.kind, in_one_span);
        EXPECT_EQ(small.weight, as_bytes(as_floats(wide.weight, DType::f32), dtype)) << row.name;
        EXPECT_EQ(small.first, as_bytes(as_floats(wide.first, DType::f32), state_dtype)) << row.name;
        EXPECT_EQ(small.second, as_bytes(as_floats(wide.second, DType::f32), state_dtype)) << row.name;
      }
}

TEST(LoneUpdate, CutsBetweenThreadsDoNotShow) {
  const ParallelFor in_parts = [](int64_t numel, const std::function<void(int64_t, int64_t)>& work) {
    for (int64_t begin = 0; begin < numel; begin += 777) work(begin, std::min(numel, begin + 777));
  };
  for (const OptimizerRow& row : kOptimizers)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      LoneBytes whole = lone_tensors(dtype, DType::f32), cut = whole;
      update_lone(whole, dtype, DType::f32, row.kind, in_one_span);
      update_lone(cut, dtype, DType::f32, row.kind, in_parts);
      EXPECT_EQ(whole.weight, cut.weight);
      EXPECT_EQ(whole.first, cut.first);
      EXPECT_EQ(whole.second, cut.second);
      EXPECT_NE(whole.weight, lone_tensors(dtype, DType::f32).weight);
    }
}

TEST(LoneUpdate, AnEmptyTensorIsPassedOver) {
  OptimizerConfig config;
  StepNumbers numbers;
  numbers.lrs = {0.01};
  numbers.weight_decays = {0};
  update_alone(LoneTensor{}, group_steps(config, numbers), in_one_span);
}

}  // namespace
}  // namespace shoal
