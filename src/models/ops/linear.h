// The matrices of a block: y = x weight^T + bias, in the dtype of x or, on a GPU that can, from 8-bit numbers: e4m3 for
// x and weight, e5m2 for gradients, with scales from the largest magnitude of what is multiplied, found on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/ops/origin.h"

namespace shoal::models::ops {

enum class Matmul : uint8_t {
  plain,           // in the dtype of x
  fp8_tensorwise,  // one scale a tensor
  fp8_rowwise,     // one scale a row or column of what is multiplied
};

// weight [out, in]; bias may be undefined.
at::Tensor linear(Matmul how, const Operand& x, const at::Tensor& weight, const at::Tensor& bias = {});

// Several matrices on one x; biases are none, or one each, which may be undefined. In fp8 x is rounded once for all,
// and kept in 8 bits. An x that has an origin is not kept: backward makes it again, once for all matrices, and in fp8
// rounds it again. Both ways give the same bits.
std::vector<at::Tensor> linears(Matmul how, const Operand& x, const std::vector<at::Tensor>& weights,
                                const std::vector<at::Tensor>& biases = {});

// Throws an Error where x is not on a device that multiplies fp8.
void check_fp8(const at::Tensor& x);

}  // namespace shoal::models::ops
