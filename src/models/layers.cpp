// See layers.h.
#include "models/layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "models/ops/attention.h"
#include "models/ops/repeatable_attention.h"

namespace shoal::models {

namespace {

// [batch, kv_heads, time, dim] -> [batch, heads, time, dim], each head repeated for its neighbours.
at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

// Whom a position does not attend to: [time, time], with documents [batch, 1, time, time].
at::Tensor hidden_from(const at::Tensor& q, const Attention& how) {
  const int64_t time = q.size(2);
  at::Tensor unseen = at::ones({time, time}, q.options().dtype(at::kBool)).triu(1);
  if (how.window > 0) unseen = unseen.logical_or(at::ones_like(unseen).tril(-how.window));
  if (how.documents == nullptr) return unseen;
  const at::Tensor& numbers = how.documents->numbers;
  return numbers.unsqueeze(2).ne(numbers.unsqueeze(1)).unsqueeze(1).logical_or(unseen);
}

double scale_of(const at::Tensor& q, const Attention& how) {
  return how.scale != 0 ? how.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
}

// By hand, since the library's fused attention draws its dropout from the process's default generator.
at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how,
                                  const Randomness& randomness) {
  at::Tensor scores = at::matmul(q, repeat_heads(k, q.size(1)).transpose(2, 3)).mul(scale_of(q, how));
  if (how.softcap > 0) scores = scores.div(how.softcap).tanh().mul(how.softcap);
  const at::Tensor weights =
      at::softmax(scores.masked_fill(hidden_from(q, how), -std::numeric_limits<double>::infinity()), -1, at::kFloat);
  return at::matmul(dropout(weights.to(q.scalar_type()), how.dropout, randomness), repeat_heads(v, q.size(1)));
}

// Of rows that are one document each, without dropout: [batch, heads, time, dim].
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how) {
  if (ops::needs_chunks(how.softcap, how.window, q.size(2))) {
    return ops::chunked_attention(q, k, v, {.scale = scale_of(q, how), .softcap = how.softcap, .window = how.window});
  }
  if (ops::wants_repeatable_attention(q, k, v)) return ops::repeatable_attention(q, k, v, scale_of(q, how));
  const std::optional<double> scale = how.scale != 0 ? std::optional(how.scale) : std::nullopt;
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, scale,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

// [Note: attention within documents]
// Each document is a call of its own, of the shape that it would have alone: no work is spent on pairs of documents,
// and the numbers are those of the document alone. On a GPU one kernel could take all documents of a batch, with their
// ends; these are as many launches as documents.
at::Tensor attention_by_document(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Attention& how) {
  // [heads, batch * time, dim], then a piece a document; backward of each step is one copy.
  const auto pieces = [&](const at::Tensor& x) {
    return x.transpose(0, 1).flatten(1, 2).split_with_sizes(how.documents->lengths, 1);
  };
  const std::vector<at::Tensor> qs = pieces(q), ks = pieces(k), vs = pieces(v);
  std::vector<at::Tensor> attended;
  for (size_t i = 0; i < qs.size(); ++i) {
    attended.push_back(attend(qs[i].unsqueeze(0), ks[i].unsqueeze(0), vs[i].unsqueeze(0), how));
  }
  return at::cat(attended, 2).squeeze(0).unflatten(1, {q.size(0), q.size(2)}).transpose(0, 1);
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
  at::Tensor attended;
  if (how.dropout > 0 && randomness.training) {
    attended = attention_with_dropout(q, k, v, how, randomness);
  } else if (how.documents != nullptr) {
    attended = attention_by_document(q, k, v, how);
  } else {
    attended = attend(q, k, v, how);
  }
  return attended.transpose(1, 2).flatten(2);
}

at::Tensor split_heads(const at::Tensor& x, int64_t dim) { return x.unflatten(-1, {-1, dim}).transpose(1, 2); }

}  // namespace shoal::models
