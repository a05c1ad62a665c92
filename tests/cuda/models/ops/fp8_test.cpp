#include "models/ops/cuda/fp8.h"

#include "cuda/tensors.h"
#include "models/ops/fp8.h"
#include "shoal/error.h"

namespace shoal {

using models::ops::Fp8Both;
using models::ops::Matmul;
using models::ops::Sides;
using models::ops::to_fp8;
using models::ops::cuda::Fp8;

namespace {

using Fp8Kernels = OnGpuTensors;

std::vector<std::vector<int64_t>> shapes() {
  if (tests_are_small()) return {{1, 16}, {70, 80}, {129, 520}};
  return {{1, 16}, {16, 16}, {63, 64}, {70, 80}, {65, 1040}, {300, 128}, {129, 520}, {2048, 2048}};
}

double largest_of(Fp8 format) { return format == Fp8::e4m3 ? 448 : 57344; }
at::ScalarType type_of(Fp8 format) { return format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2; }

// What the library's own cast makes of x times 1 / scale.
at::Tensor cast(const at::Tensor& x, const at::Tensor& scales, Fp8 format) {
  return x.to(at::kFloat).mul(scales.reciprocal()).clamp(-largest_of(format), largest_of(format)).to(type_of(format));
}

}  // namespace

TEST_F(Fp8Kernels, ValuesAndScalesAreThoseOfTheLibrarysCastInBothLayouts) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
      for (const std::vector<int64_t>& shape : shapes()) {
        for (const Matmul how : {Matmul::fp8_tensorwise, Matmul::fp8_rowwise}) {
          const bool rowwise = how == Matmul::fp8_rowwise;
          const at::Tensor x = on_gpu(shape, dtype, 3);
          const Fp8Both both = to_fp8(x, format, how, Sides::both);
          const std::string words = words_of(rowwise ? "rowwise" : "tensorwise", dtype, shape);
          const at::Tensor magnitude = x.to(at::kFloat).abs();
          const at::Tensor of_rows = rowwise ? magnitude.amax(1) : magnitude.amax().reshape({1});
          const at::Tensor of_columns = rowwise ? magnitude.amax(0) : of_rows;
          EXPECT_LT(relative_error(both.straight.scales, of_rows.div(largest_of(format))), 1e-6) << words;
          EXPECT_LT(relative_error(both.transposed.scales, of_columns.div(largest_of(format))), 1e-6) << words;

          const at::Tensor straight = cast(x, both.straight.scales.unsqueeze(1), format);
          EXPECT_TRUE(both.straight.values.view(at::kByte).equal(straight.view(at::kByte))) << words;
          const at::Tensor transposed = cast(x, both.transposed.scales.unsqueeze(0), format).t().contiguous();
          const at::Tensor given = both.transposed.values.view(at::kByte);
          EXPECT_EQ(given.size(1) % 16, 0) << words;
          EXPECT_TRUE(given.narrow(1, 0, shape[0]).equal(transposed.view(at::kByte))) << words;
          EXPECT_TRUE(given.narrow(1, shape[0], given.size(1) - shape[0]).eq(0).all().item<bool>()) << words;
        }
      }
    }
  }
}

TEST_F(Fp8Kernels, OneSideAloneIsTheSame) {
  const at::Tensor x = on_gpu({70, 80}, at::kBFloat16);
  for (const Matmul how : {Matmul::fp8_tensorwise, Matmul::fp8_rowwise}) {
    const Fp8Both both = to_fp8(x, Fp8::e4m3, how, Sides::both);
    const Fp8Both straight = to_fp8(x, Fp8::e4m3, how, Sides::straight);
    const Fp8Both transposed = to_fp8(x, Fp8::e4m3, how, Sides::transposed);
    EXPECT_FALSE(straight.transposed.values.defined());
    EXPECT_FALSE(transposed.straight.values.defined());
    EXPECT_TRUE(straight.straight.values.view(at::kByte).equal(both.straight.values.view(at::kByte)));
    EXPECT_TRUE(transposed.transposed.values.view(at::kByte).equal(both.transposed.values.view(at::kByte)));
  }
}

TEST_F(Fp8Kernels, ZerosHaveAScaleAndANanIsSeen) {
  const at::Tensor zeros = at::zeros({16, 16}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  at::Tensor spoiled = zeros.clone();
  spoiled[3][5].fill_(std::numeric_limits<float>::quiet_NaN());
  for (const Matmul how : {Matmul::fp8_tensorwise, Matmul::fp8_rowwise}) {
    const Fp8Both of_zeros = to_fp8(zeros, Fp8::e4m3, how, Sides::both);
    EXPECT_TRUE(of_zeros.straight.scales.gt(0).all().item<bool>());
    EXPECT_TRUE(of_zeros.straight.values.view(at::kByte).eq(0).all().item<bool>());
    const Fp8Both of_spoiled = to_fp8(spoiled, Fp8::e4m3, how, Sides::both);
    EXPECT_TRUE(of_spoiled.straight.scales.isnan().any().item<bool>());
    EXPECT_TRUE(of_spoiled.transposed.scales.isnan().any().item<bool>());
  }
}

TEST_F(Fp8Kernels, RowsOfOddLengthAreRefused) {
  EXPECT_THROW(to_fp8(on_gpu({4, 12}, at::kFloat), Fp8::e4m3, Matmul::fp8_tensorwise, Sides::straight), Error);
}

}  // namespace shoal
