// Tensors of the CPU from 16 bits to fp32 and back, by our own conversions and on torch's threads. For fp32_products.h
// and half_copies.h; without a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace shoal::aten {

bool is_16_bit(at::ScalarType dtype);

// The values in fp32; dense ones keep their order in memory.
at::Tensor widened(const at::Tensor& given);
// The same of a tensor that may be missing, or of another dtype: those come back as they are.
std::optional<at::Tensor> widened(const std::optional<at::Tensor>& given);

// Rounded to nearest, ties to even, in the order of memory of `wide`.
at::Tensor rounded(const at::Tensor& wide, at::ScalarType dtype);

// Elements that lie in one order in both, without gaps.
void convert_span(const at::Tensor& in, const at::Tensor& out);

// Matrices of one shape, the elements of a row side by side in both; rows may have gaps, or be one row again and again.
void convert_rows(const at::Tensor& in, const at::Tensor& out);

}  // namespace shoal::aten
