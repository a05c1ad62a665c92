// cuDNN's deterministic backward of causal attention, for repeatable_attention.cpp. In a build without cuDNN's frontend
// no_cudnn_backward.cpp stands here, which takes nothing; see cmake/Cudnn.cmake.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace shoal::models::ops {

// Whether this build has it.
bool has_cudnn_backward();

// q, out and grad [batch, heads, time, dim], k and v [batch, kv_heads, time, dim], all of one 16-bit dtype; sums
// [batch, heads, time], contiguous, fp32: the logarithms that forward gave.
struct AttentionBackward {
  at::Tensor grad, q, k, v, out, sums;
  double scale = 1;
};
struct AttentionGrads {
  at::Tensor q, k, v;
};

// Nothing where cuDNN does not take it: by shape (attention_pieces.h) and strides; on a GPU that is no Hopper, where
// this was not tried; and where cuDNN builds no plan for the shape, which it then says once on stderr. The answer is
// the same in every run on the same GPU and libraries. Takes the library's current stream.
std::optional<AttentionGrads> cudnn_backward(const AttentionBackward& of);

}  // namespace shoal::models::ops
