// Parts that families share: attention, dropout. Random numbers come from the rank's generator, never from
// the process's default, so that a run repeats by its seed and recompute repeats its masks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "models/documents.h"

namespace shoal::models {

// What dropout needs to know of a pass. The generator is the engine's.
struct Randomness {
  bool training = false;  // false: dropout is off
  at::Generator generator;
};

// Each element is 0 with probability p and otherwise divided by 1 - p; x itself when p is 0 or the pass is no training.
at::Tensor dropout(const at::Tensor& x, double p, const Randomness& randomness);

// Each position attends to itself and those before it; scores times 1 / sqrt(dim). k and v may have fewer heads: each
// then serves heads / kv_heads neighbouring heads of q. q [batch, heads, time, dim], k and v [batch, kv_heads, time,
// dim] -> [batch, time, heads * dim]. `p` is the dropout of the attention weights.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p,
                            const Randomness& randomness);

// The same with other scores: of the last `window` tokens only, itself included (0: of all), times `scale` (0: as
// above), within c tanh(score / c); and, where a row holds several documents, of a position's own one alone.
struct Attention {
  double scale = 0;
  double softcap = 0;  // c; 0: none
  int64_t window = 0;
  double dropout = 0;
  const Documents* documents = nullptr;
};
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how,
                            const Randomness& randomness);

// [batch, time, heads * dim] -> [batch, heads, time, dim].
at::Tensor split_heads(const at::Tensor& x, int64_t dim);

}  // namespace shoal::models
