// See layers.h.
#include "models/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <optional>

#include "models/ops/attention.h"

namespace shoal::models {

namespace {

// [batch, kv_heads, time, dim] -> [batch, heads, time, dim], each head repeated for its neighbours.
at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

// By hand, since the library's fused attention draws its dropout from the process's default generator.
at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how,
                                  const Randomness& randomness) {
  const int64_t time = q.size(2);
  const double scale = how.scale != 0 ? how.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor unseen = at::ones({time, time}, q.options().dtype(at::kBool)).triu(1);
  if (how.window > 0) unseen = unseen.logical_or(at::ones_like(unseen).tril(-how.window));
  at::Tensor scores = at::matmul(q, repeat_heads(k, q.size(1)).transpose(2, 3)).mul(scale);
  if (how.softcap > 0) scores = scores.div(how.softcap).tanh().mul(how.softcap);
  const at::Tensor weights =
      at::softmax(scores.masked_fill(unseen, -std::numeric_limits<double>::infinity()), -1, at::kFloat);
  return at::matmul(dropout(weights.to(q.scalar_type()), how.dropout, randomness), repeat_heads(v, q.size(1)));
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const Randomness& randomness) {
  if (p == 0 || !randomness.training) return x;
  const at::Tensor kept = at::empty(x.sizes(), x.options().dtype(at::kBool)).bernoulli_(1 - p, randomness.generator);
  return x.mul(kept).mul(1 / (1 - p));
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p,
                            const Randomness& randomness) {
  return causal_attention(q, k, v, Attention{.dropout = p}, randomness);
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how,
                            const Randomness& randomness) {
  const std::optional<double> scale = how.scale != 0 ? std::optional(how.scale) : std::nullopt;
  at::Tensor attended;
  if (how.dropout > 0 && randomness.training) {
    attended = attention_with_dropout(q, k, v, how, randomness);
  } else if (how.softcap > 0 || (how.window > 0 && how.window < q.size(2))) {
    attended = ops::chunked_attention(q, k, v,
                                      {.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))),
                                       .softcap = how.softcap,
                                       .window = how.window});
  } else {
    attended = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, scale,
                                                /*enable_gqa=*/q.size(1) != k.size(1));
  }
  return attended.transpose(1, 2).flatten(2);
}

at::Tensor split_heads(const at::Tensor& x, int64_t dim) { return x.unflatten(-1, {-1, dim}).transpose(1, 2); }

}  // namespace shoal::models
