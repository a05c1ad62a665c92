// A matrix in 8 bits, with its scales, the way round that a product needs it. On a GPU only.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/ops/cuda/fp8.h"
#include "models/ops/linear.h"

namespace shoal::models::ops {

// values times scales is the matrix. One scale, or one a row of `values`.
struct Fp8Matrix {
  at::Tensor values;  // [rows, columns]
  at::Tensor scales;  // [1] or [rows]
};

struct Fp8Both {
  Fp8Matrix straight;    // of x [rows, columns]
  Fp8Matrix transposed;  // of x^T [columns, rows], with rows padded by zeros to a multiple of 16
};

enum class Sides : uint8_t { straight, transposed, both };

// x [rows, columns], contiguous, columns a multiple of 16. What is not asked for stays undefined.
Fp8Both to_fp8(const at::Tensor& x, cuda::Fp8 format, Matmul how, Sides sides);

struct Fp8Product {
  at::ScalarType dtype;
  bool fast_sums = false;
  at::Tensor target = {};  // to be filled; undefined: a new tensor
};
// a [m, k] times b^T, where b is [n, k] -> [m, n].
at::Tensor multiply_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Fp8Product& product);

}  // namespace shoal::models::ops
