// Between tensors and the kernels of models/ops/cuda: which tensors they take, the stream they run on. The operations
// of this folder are plain functions on tensors with gradients; on the CPU each is the library's own operations.
#pragma once

#include <ATen/core/Tensor.h>

#include "shoal/dtype.h"

namespace shoal::models::ops {

// Whether the kernels compute on these: all on a GPU and of one dtype that they know.
bool runs_fused(std::initializer_list<at::Tensor> tensors);

// The library's current stream on the tensor's device, as the kernels take it.
void* stream_of(const at::Tensor& tensor);

// Of a tensor for which runs_fused holds.
DType dtype_of(const at::Tensor& tensor);

}  // namespace shoal::models::ops
