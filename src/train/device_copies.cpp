// See device_copies.h.
#include "train/device_copies.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace shoal::train {

namespace {

// For memory that a GPU copies from and to while the host goes on.
at::TensorOptions on_host(at::ScalarType dtype, at::Device device) {
  return at::TensorOptions(dtype).pinned_memory(device.is_cuda());
}

}  // namespace

at::Tensor tokens_on(at::Device device, const std::vector<int64_t>& tokens, int64_t sequence) {
  const int64_t rows = static_cast<int64_t>(tokens.size()) / sequence;
  const at::Tensor tensor = at::empty({rows, sequence}, on_host(at::kLong, device));
  std::copy(tokens.begin(), tokens.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor.to(device, /*non_blocking=*/true);
}

at::Tensor to_host(const at::Tensor& tensor) {
  at::Tensor copy = at::empty(tensor.sizes(), on_host(tensor.scalar_type(), tensor.device()));
  return copy.copy_(tensor.detach(), /*non_blocking=*/true);
}

}  // namespace shoal::train
