// The head of a language model and its loss in one operation. On a GPU it goes through the tokens in chunks: a chunk's
// logits are made, turned into its losses and their gradient in place, and used for the gradients of x and of the
// weight at once, so that logits exist for one chunk at a time and never in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "shoal/dtype.h"

namespace shoal::models::ops {

// Mean cross-entropy over all tokens, fp32. x [..., hidden], weight [vocab, hidden], targets [...] int64; a target of
// -100 counts for nothing. With a softcap c above 0 the logits are c tanh(logits / c).
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                double softcap = 0);

// c tanh(logits / c); as they are for 0.
at::Tensor cap_logits(const at::Tensor& logits, double softcap);

// Tokens whose logits exist at once on a GPU.
int64_t tokens_a_chunk(int64_t tokens, int64_t vocab, int64_t hidden, DType dtype);

// Bytes that the operation holds at its peak on a GPU beyond its inputs, with gradients, that of the weight if it is
// trained.
size_t linear_cross_entropy_nbytes(int64_t tokens, int64_t vocab, int64_t hidden, DType dtype, bool capped = false,
                                   bool trained = true);

}  // namespace shoal::models::ops
