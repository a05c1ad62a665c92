// What a run moves between host memory and a rank's device while the host goes on: tokens there, losses back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace shoal::train {

// Rows of `sequence` tokens, one after the other, as [rows, sequence].
at::Tensor tokens_on(at::Device device, const std::vector<int64_t>& tokens, int64_t sequence);

// A copy without a graph, which is there when the device has done what came before it.
at::Tensor to_host(const at::Tensor& tensor);

}  // namespace shoal::train
