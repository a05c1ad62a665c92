// Causal attention by the library's matrix products, for scores that its fused attention does not know: capped ones,
// and those within a window. It goes through the queries in chunks and keeps one number a row: no matrix of time x time
// exists, and keys outside the window of a chunk are not read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shoal::models::ops {

struct Scores {
  double scale = 1;
  double softcap = 0;  // c: c tanh(score / c); 0: as they are
  int64_t window = 0;  // a position attends to so many, itself included; 0: to all before it
  int64_t chunk = 0;   // queries at once; 0: by the room that their scores take
};

// Whether scores want this attention: capped ones, and windows that do not see all of `time`.
inline bool needs_chunks(double softcap, int64_t window, int64_t time) {
  return softcap > 0 || (window > 0 && window < time);
}

// q [batch, heads, time, dim], k and v [batch, kv_heads, time, dim] -> [batch, heads, time, dim]. Scores, their
// softmax and their gradients are in fp32; weights are rounded to the dtype of v for the product with it. A chunk's
// length depends on the shapes alone.
at::Tensor chunked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Scores& scores);

// Queries at once, of `heads` heads in the whole batch.
int64_t attention_chunk(int64_t batch, int64_t heads, int64_t time, int64_t window);
// Keys that a chunk of so many queries reads at most.
int64_t attention_reach(int64_t chunk, int64_t time, int64_t window);

}  // namespace shoal::models::ops
