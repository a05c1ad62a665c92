// See launch.h.
#include "models/ops/launch.h"

#include "base/check.h"
#include "shard/compute_queue.h"

namespace shoal::models::ops {

bool runs_fused(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType type = tensors.begin()->scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return false;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_cuda() || tensor.scalar_type() != type) return false;
  }
  return true;
}

void* stream_of(const at::Tensor& tensor) { return current_stream(tensor.device()); }

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16: return DType::bf16;
    case at::kHalf: return DType::f16;
    default: break;
  }
  SHOAL_CHECK(tensor.scalar_type() == at::kFloat, "{}", c10::toString(tensor.scalar_type()));
  return DType::f32;
}

}  // namespace shoal::models::ops
