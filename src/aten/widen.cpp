// See widen.h.
#include "aten/widen.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "kernels/convert.h"

namespace shoal::aten {

namespace {

using at::Tensor;

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that a thread takes at least

DType dtype_of(const Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return DType::f32;
  return tensor.scalar_type() == at::kHalf ? DType::f16 : DType::bf16;
}

int64_t nbytes_of_row(const Tensor& matrix) {
  return matrix.stride(0) * static_cast<int64_t>(nbytes_of(dtype_of(matrix)));
}

bool has_whole_rows(const Tensor& matrix) { return matrix.stride(1) == 1 || matrix.size(1) == 1; }

}  // namespace

bool is_16_bit(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

void convert_span(const Tensor& in, const Tensor& out) {
  const auto* from = static_cast<const char*>(in.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const DType in_dtype = dtype_of(in), out_dtype = dtype_of(out);
  const auto in_nbytes = static_cast<int64_t>(nbytes_of(in_dtype));
  const auto out_nbytes = static_cast<int64_t>(nbytes_of(out_dtype));
  at::parallel_for(0, in.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::convert(from + begin * in_nbytes, in_dtype, to + begin * out_nbytes, out_dtype, end - begin);
  });
}

void convert_rows(const Tensor& in, const Tensor& out) {
  const auto* from = static_cast<const char*>(in.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const DType in_dtype = dtype_of(in), out_dtype = dtype_of(out);
  const int64_t in_nbytes = nbytes_of_row(in), out_nbytes = nbytes_of_row(out), columns = in.size(1);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns));
  at::parallel_for(0, in.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels::convert(from + row * in_nbytes, in_dtype, to + row * out_nbytes, out_dtype, columns);
    }
  });
}

Tensor widened(const Tensor& given) {
  const auto options = given.options().dtype(at::kFloat);
  if (given.is_non_overlapping_and_dense()) {
    Tensor wide = at::empty_strided(given.sizes(), given.strides(), options);
    convert_span(given, wide);
    return wide;
  }
  if (given.dim() == 2 && has_whole_rows(given)) {
    Tensor wide = at::empty(given.sizes(), options);
    convert_rows(given, wide);
    return wide;
  }
  if (given.dim() == 2 && has_whole_rows(given.t())) return widened(given.t()).t();
  return widened(given.contiguous());
}

std::optional<Tensor> widened(const std::optional<Tensor>& given) {
  return given && given->defined() && is_16_bit(given->scalar_type()) ? widened(*given) : given;
}

Tensor rounded(const Tensor& wide, at::ScalarType dtype) {
  const Tensor dense = wide.is_non_overlapping_and_dense() ? wide : wide.contiguous();
  Tensor narrow = at::empty_strided(dense.sizes(), dense.strides(), dense.options().dtype(dtype));
  convert_span(dense, narrow);
  return narrow;
}

}  // namespace shoal::aten
