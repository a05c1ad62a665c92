// The model of the training benchmark with libtorch: the same function as bench/peers/llama.py, cut into units.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string>
#include <vector>

#include "shoal/engine.h"

namespace shoal::bench {

struct LlamaShape {
  int64_t hidden = 512, layers = 8, heads = 8, ffn = 1376, vocab = 8192;
  int64_t batch = 2;   // sequences a rank and step
  int64_t time = 256;  // tokens a sequence
  double eps = 1e-5, theta = 10000.0;
};

struct LlamaBlock {
  at::Tensor attention_norm, q, k, v, o;  // [hidden], [hidden, hidden]
  at::Tensor ffn_norm, gate, up, down;    // [hidden], [ffn, hidden], [hidden, ffn]
};

class Llama {
 public:
  explicit Llama(const LlamaShape& shape) : shape_(shape) {
    // Norms are 1, the others normal(0, 0.02), drawn in the order of the peers' parameters().
    at::Generator random = at::detail::createCPUGenerator(0);
    const auto matrix = [&](int64_t rows, int64_t columns) {
      return at::empty({rows, columns}).normal_(0.0, 0.02, random).set_requires_grad(true);
    };
    const auto norm = [&] { return at::ones({shape.hidden}).set_requires_grad(true); };
    embed_ = matrix(shape.vocab, shape.hidden);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      LlamaBlock block;
      block.attention_norm = norm();
      for (at::Tensor* weight : {&block.q, &block.k, &block.v, &block.o}) *weight = matrix(shape.hidden, shape.hidden);
      block.ffn_norm = norm();
      block.gate = matrix(shape.ffn, shape.hidden);
      block.up = matrix(shape.ffn, shape.hidden);
      block.down = matrix(shape.hidden, shape.ffn);
      blocks_.push_back(block);
    }
    norm_ = norm();
    head_ = matrix(shape.vocab, shape.hidden);
    const int64_t half = shape.hidden / shape.heads / 2;
    const at::Tensor frequency = at::pow(shape.theta, -at::arange(0, half, at::kFloat) / half);
    at::Tensor angle = at::arange(shape.time, at::kFloat).unsqueeze(1) * frequency.unsqueeze(0);
    angle = at::cat({angle, angle}, 1);
    cos_ = angle.cos();
    sin_ = angle.sin();
  }

  std::vector<Unit> units() const {
    std::vector<Unit> units = {{"embed", {{"embed.weight", embed_}}}};
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      const LlamaBlock& b = blocks_[layer];
      const std::string prefix = "blocks." + std::to_string(layer) + ".";
      units.push_back({"blocks." + std::to_string(layer),
                       {{prefix + "attention_norm", b.attention_norm},
                        {prefix + "q", b.q},
                        {prefix + "k", b.k},
                        {prefix + "v", b.v},
                        {prefix + "o", b.o},
                        {prefix + "ffn_norm", b.ffn_norm},
                        {prefix + "gate", b.gate},
                        {prefix + "up", b.up},
                        {prefix + "down", b.down}}});
    }
    units.push_back({"head", {{"norm.weight", norm_}, {"head.weight", head_}}});
    return units;
  }

  // tokens, targets [batch, time] -> mean cross-entropy.
  at::Tensor loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets) const {
    at::Tensor x = engine.run(0, tokens, [&](const at::Tensor& t) { return at::embedding(embed_, t); });
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      x = engine.run(static_cast<int>(layer) + 1, x, [&](const at::Tensor& t) { return block(blocks_[layer], t); });
    }
    return engine.run(static_cast<int>(blocks_.size()) + 1, x, [&](const at::Tensor& t) {
      const at::Tensor logits = at::linear(at::rms_norm(t, {shape_.hidden}, norm_, shape_.eps), head_);
      return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
    });
  }

 private:
  at::Tensor split_heads(const at::Tensor& x) const {  // [batch, time, hidden] -> [batch, head, time, dim]
    return x.unflatten(-1, {shape_.heads, -1}).transpose(1, 2);
  }
  at::Tensor rotate(const at::Tensor& x) const {
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    return x * cos_ + at::cat({-halves[1], halves[0]}, -1) * sin_;
  }
  at::Tensor block(const LlamaBlock& b, const at::Tensor& input) const {
    at::Tensor h = at::rms_norm(input, {shape_.hidden}, b.attention_norm, shape_.eps);
    const at::Tensor q = rotate(split_heads(at::linear(h, b.q)));
    const at::Tensor k = rotate(split_heads(at::linear(h, b.k)));
    const at::Tensor v = split_heads(at::linear(h, b.v));
    const at::Tensor a = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
    const at::Tensor x = input + at::linear(a.transpose(1, 2).flatten(-2), b.o);
    h = at::rms_norm(x, {shape_.hidden}, b.ffn_norm, shape_.eps);
    return x + at::linear(at::silu(at::linear(h, b.gate)) * at::linear(h, b.up), b.down);
  }

  LlamaShape shape_;
  at::Tensor embed_, norm_, head_, cos_, sin_;
  std::vector<LlamaBlock> blocks_;
};

// [pool, batch, time + 1] tokens of this rank; inputs are all but the last, targets all but the first.
inline constexpr int64_t kBatchPool = 8;
inline at::Tensor make_batches(const LlamaShape& shape, int rank) {
  at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + rank));
  return at::randint(0, shape.vocab, {kBatchPool, shape.batch, shape.time + 1}, random, at::kLong);
}

}  // namespace shoal::bench
