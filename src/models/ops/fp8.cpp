// See fp8.h.
#include "models/ops/fp8.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>

#include "models/ops/launch.h"

namespace shoal::models::ops {

using at::Tensor;
using cuda::Fp8;

Fp8Both to_fp8(const Tensor& x, Fp8 format, Matmul how, Sides sides) {
  constexpr int64_t kPadding = 16;
  cuda::ToFp8 args;
  args.input = {x.const_data_ptr(), x.size(0), x.size(1), dtype_of(x)};
  args.format = format;
  const bool rowwise = how == Matmul::fp8_rowwise;
  args.by_line = rowwise;
  const auto bytes = x.options().dtype(at::kByte);
  const auto in_fp32 = x.options().dtype(at::kFloat);
  const at::ScalarType type = format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  Fp8Both out;
  if (sides != Sides::transposed) {
    const Tensor values = at::empty({x.size(0), x.size(1)}, bytes);
    args.out = values.mutable_data_ptr();
    out.straight.values = values.view(type);
    if (rowwise) {
      out.straight.scales = at::empty({x.size(0)}, in_fp32);
      args.out_scales = out.straight.scales.mutable_data_ptr<float>();
    }
  }
  if (sides != Sides::straight) {
    args.padded_rows = (x.size(0) + kPadding - 1) / kPadding * kPadding;
    const Tensor values = at::empty({x.size(1), args.padded_rows}, bytes);
    args.transposed = values.mutable_data_ptr();
    out.transposed.values = values.view(type);
    if (rowwise) {
      out.transposed.scales = at::empty({x.size(1)}, in_fp32);
      args.transposed_scales = out.transposed.scales.mutable_data_ptr<float>();
    }
  }
  if (!rowwise) {
    const Tensor scale = at::empty({1}, in_fp32);
    args.out_scales = scale.mutable_data_ptr<float>();
    if (out.straight.values.defined()) out.straight.scales = scale;
    if (out.transposed.values.defined()) out.transposed.scales = scale;
  }
  cuda::to_fp8(args, stream_of(x));
  return out;
}

Tensor multiply_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Fp8Product& product) {
  const bool one_scale = a.scales.numel() == 1 && b.scales.numel() == 1;
  const Tensor a_scales = one_scale ? a.scales : a.scales.unsqueeze(1);
  const Tensor b_scales = one_scale ? b.scales : b.scales.unsqueeze(0);
  const auto& [dtype, fast_sums, target] = product;
  if (!target.defined()) return at::_scaled_mm(a.values, b.values.t(), a_scales, b_scales, {}, {}, dtype, fast_sums);
  Tensor made = target;
  return at::_scaled_mm_out(made, a.values, b.values.t(), a_scales, b_scales, {}, {}, dtype, fast_sums);
}

}  // namespace shoal::models::ops
