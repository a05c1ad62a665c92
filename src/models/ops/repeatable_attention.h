// The library's fused causal attention on a GPU, with the same bits in every run: cuDNN's forward, which is the fastest
// and adds in one order, and a backward in the form that does: cuDNN's (cudnn_backward.h) where it takes the shape,
// FlashAttention's elsewhere. In deterministic mode scaled_dot_product_attention leaves cuDNN aside as a whole, and the
// library has no way to ask for its deterministic backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace shoal::models::ops {

// Whether it is asked for (make_deterministic), and takes these shapes and this dtype.
bool wants_repeatable_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// q [batch, heads, time, dim], k and v [batch, kv_heads, time, dim] -> [batch, heads, time, dim].
at::Tensor repeatable_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale);

}  // namespace shoal::models::ops
