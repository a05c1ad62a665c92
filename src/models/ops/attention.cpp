// See attention.h.
#include "models/ops/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

// One chunk of queries and the keys that it sees.
struct Part {
  int64_t begin = 0, count = 0;  // of queries
  int64_t low = 0, keys = 0;
};

// Calls `with` for each chunk.
template <typename With>
void for_each_part(int64_t time, int64_t window, int64_t chunk, const With& with) {
  for (int64_t begin = 0; begin < time; begin += chunk) {
    const int64_t count = std::min(chunk, time - begin);
    const int64_t low = window > 0 ? std::max<int64_t>(0, begin - window + 1) : 0;
    with(Part{begin, count, low, begin + count - low});
  }
}

// The queries of a chunk, those of the heads that share a key one after the other: [batch, kv_heads, group * count,
// dim].
Tensor queries_of(const Tensor& x, const Part& part, int64_t kv_heads) {
  return x.narrow(2, part.begin, part.count).reshape({x.size(0), kv_heads, -1, x.size(3)});
}

Tensor keys_of(const Tensor& x, const Part& part) { return x.narrow(2, part.low, part.keys); }

// What of a chunk a position does not see, [count, keys].
Tensor unseen_of(const Part& part, int64_t window, const Tensor& like) {
  const auto options = like.options().dtype(at::kLong);
  const Tensor query = at::arange(part.begin, part.begin + part.count, options).unsqueeze(1);
  const Tensor key = at::arange(part.low, part.low + part.keys, options).unsqueeze(0);
  const Tensor later = key.gt(query);
  return window > 0 ? later.logical_or(key.le(query.sub(window))) : later;
}

// a b^T, in fp32 from any dtype: rounded to 16 bits a large score would weigh something else, and in fp16 overflow.
Tensor product_in_fp32(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() == at::kFloat || !a.is_cuda()) {
    return at::matmul(a.to(at::kFloat), b.to(at::kFloat).transpose(2, 3));
  }
  return at::bmm(a.flatten(0, 1), b.flatten(0, 1).transpose(1, 2), at::kFloat).unflatten(0, {a.size(0), a.size(1)});
}

struct ChunkScores {
  Tensor scores;  // [batch, kv_heads, group * count, keys], fp32
  Tensor slope;   // of the cap; undefined without one
};

ChunkScores scores_of(const Tensor& queries, const Tensor& keys, const Part& part, const Scores& how, bool with_slope) {
  Tensor scores = product_in_fp32(queries, keys).mul_(how.scale);
  Tensor slope;
  if (how.softcap > 0) {
    scores.div_(how.softcap).tanh_();
    if (with_slope) slope = scores.square().neg_().add_(1);
    scores.mul_(how.softcap);
  }
  scores.view({scores.size(0), scores.size(1), -1, part.count, part.keys})
      .masked_fill_(unseen_of(part, how.window, scores), -std::numeric_limits<double>::infinity());
  return {scores, slope};
}

struct ChunkedAttention final : ag::Function<ChunkedAttention> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                        double softcap, int64_t window, int64_t chunk) {
    const Scores how = {scale, softcap, window, chunk};
    const int64_t batch = q.size(0), heads = q.size(1), time = q.size(2), kv_heads = k.size(1);
    // As it goes on: heads of a token side by side.
    const Tensor out = at::empty({batch, time, heads, v.size(3)}, q.options()).transpose(1, 2);
    const Tensor sums = at::empty({batch, heads, time}, q.options().dtype(at::kFloat));
    for_each_part(time, window, chunk, [&](const Part& part) {
      const Tensor scores = scores_of(queries_of(q, part, kv_heads), keys_of(k, part), part, how, false).scores;
      const Tensor sum = at::logsumexp(scores, {-1}, /*keepdim=*/true);
      const Tensor weights = scores.sub_(sum).exp_().to(v.scalar_type());
      out.narrow(2, part.begin, part.count)
          .copy_(at::matmul(weights, keys_of(v, part)).view({batch, heads, part.count, -1}));
      sums.narrow(2, part.begin, part.count).copy_(sum.view({batch, heads, part.count}));
    });
    ctx->save_for_backward({q, k, v, out, sums});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["softcap"] = softcap;
    ctx->saved_data["window"] = window;
    ctx->saved_data["chunk"] = chunk;
    return out;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &sums = saved[4], &dout = grads[0];
    const Scores how = {ctx->saved_data["scale"].toDouble(), ctx->saved_data["softcap"].toDouble(),
                        ctx->saved_data["window"].toInt(), ctx->saved_data["chunk"].toInt()};
    const int64_t kv_heads = k.size(1);
    const Tensor dq = at::empty(q.sizes(), q.options());
    // Sums over chunks, in fp32.
    const Tensor dk = at::zeros(k.sizes(), k.options().dtype(at::kFloat));
    const Tensor dv = at::zeros(v.sizes(), v.options().dtype(at::kFloat));
    for_each_part(q.size(2), how.window, how.chunk, [&](const Part& part) {
      const Tensor queries = queries_of(q, part, kv_heads), dy = queries_of(dout, part, kv_heads);
      const Tensor sum = queries_of(sums.unsqueeze(-1), part, kv_heads);
      const ChunkScores made = scores_of(queries, keys_of(k, part), part, how, true);
      const Tensor weights = made.scores.sub_(sum).exp_();
      keys_of(dv, part).add_(at::matmul(weights.to(v.scalar_type()).transpose(2, 3), dy));
      const Tensor through =
          queries_of(out, part, kv_heads).to(at::kFloat).mul(dy.to(at::kFloat)).sum(-1, /*keepdim=*/true);
      Tensor dscores = product_in_fp32(dy, keys_of(v, part)).sub_(through).mul_(weights);
      if (made.slope.defined()) dscores.mul_(made.slope);
      dscores = dscores.mul_(how.scale).to(q.scalar_type());
      dq.narrow(2, part.begin, part.count)
          .copy_(at::matmul(dscores, keys_of(k, part)).view({q.size(0), q.size(1), part.count, -1}));
      keys_of(dk, part).add_(at::matmul(dscores.transpose(2, 3), queries));
    });
    return {dq, dk.to(k.scalar_type()), dv.to(v.scalar_type()), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

int64_t attention_reach(int64_t chunk, int64_t time, int64_t window) {
  return window > 0 ? std::min(time, chunk + window - 1) : time;
}

int64_t attention_chunk(int64_t batch, int64_t heads, int64_t time, int64_t window) {
  constexpr int64_t kMostScores = int64_t{1} << 25, kTile = 128;
  int64_t chunk = time;
  while (chunk > kTile && batch * heads * chunk * attention_reach(chunk, time, window) > kMostScores) {
    chunk = (chunk / 2 + kTile - 1) / kTile * kTile;
  }
  return chunk;
}

Tensor chunked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Scores& scores) {
  const int64_t chunk =
      scores.chunk > 0 ? scores.chunk : attention_chunk(q.size(0), q.size(1), q.size(2), scores.window);
  return ChunkedAttention::apply(q, k, v, scores.scale, scores.softcap, scores.window, chunk);
}

}  // namespace shoal::models::ops
