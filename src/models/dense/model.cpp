// See model.h.
#include "models/dense/model.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "models/dense/activations.h"
#include "models/dense/families.h"
#include "models/dense/mixture.h"
#include "models/dense/weights.h"
#include "models/open_decoder.h"
#include "models/ops/norm.h"
#include "models/ops/swiglu_linear.h"

namespace shoal::models {

namespace {

class Dense final : public Decoder {
 public:
  using Config = DenseConfig;
  static Config read_config(const HfConfig& config) { return read_dense_config(config); }
  static FileNames file_names(const Config& config) {
    const DenseFamily& family = dense_family_of(config);
    // Old files hold angles and causal masks.
    return {.base_prefix = family.names.base_prefix,
            .ignored_suffixes = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"}};
  }
  static DenseWeights declare(const Config& config, ParameterList& list) { return declare_dense_weights(config, list); }
  static forecast::DecoderShape shape_of(const Config& config) {
    std::vector<int64_t> windows;
    for (const DenseLayer& layer : config.each_layer) windows.push_back(layer.window);
    forecast::DecoderShape shape = {.hidden = config.hidden,
                                    .layers = config.layers,
                                    .heads = config.heads,
                                    .q_width = config.q_width(),
                                    .kv_width = config.kv_width(),
                                    .ffn = config.ffn,
                                    .gated = config.gated,
                                    .vocab = config.vocab,
                                    .tied = config.tied,
                                    .windows = std::move(windows)};
    add_experts(config, shape);
    return shape;
  }
  static std::string export_config(const HfConfig& config, const Config& read) {
    return export_dense_config(config, read);
  }

  Dense(DecoderParts parts, Config config, DenseWeights weights)
      : Decoder(with_experts(std::move(parts), config)),
        config_(std::move(config)),
        weights_(std::move(weights)),
        rotary_(config_.rope, config_.head_dim),
        local_rotary_(config_.local_rope, config_.head_dim) {}

  StoredPieces stored_pieces() const override { return dense_pieces(config_); }

 protected:
  at::Tensor embed(const Pass& pass, const at::Tensor& tokens) const override {
    constexpr int64_t kNoPadding = -1;
    at::Tensor x = at::embedding(weights_.embedding, tokens, config_.padding_token.value_or(kNoPadding));
    if (config_.rounds_embedding_scale) {
      x = x.mul(at::scalar_tensor(config_.embedding_scale, at::kFloat).to(x.scalar_type()));
    } else if (config_.embedding_scale != 1) {
      x = x.mul(config_.embedding_scale);
    }
    if (weights_.positions.defined()) {
      const at::Tensor& positions = weights_.positions;
      const int64_t offset = config_.position_offset;
      x = x.add(pass.documents != nullptr ? at::embedding(positions, pass.documents->positions.add(offset))
                                          : positions.narrow(0, offset, tokens.size(1)));
    }
    return dropout(x, config_.embedding_dropout, pass.randomness);
  }

  at::Tensor block(const Pass& pass, size_t layer, const at::Tensor& input) const override {
    const DenseBlock& b = weights_.blocks[layer];
    if (config_.parallel) return parallel_block(pass, layer, input);
    const auto [beside, read] = fork_norm(input, b.attention_norm);
    const at::Tensor attended = attention(pass, layer, operand(pass, read, input, b.attention_norm));
    const auto [x, h] = add_norm(beside, to_add(pass, attended, b.attention_after), b.ffn_norm);
    return x.add(to_add(pass, feed_forward(pass, b, operand(pass, h, x, b.ffn_norm)), b.ffn_after));
  }

  at::Tensor last_norm(const at::Tensor& x) const override {
    const at::Tensor normed = norm(x, weights_.norm);
    return config_.logits_divisor == 1 ? normed : normed.div(config_.logits_divisor);
  }
  const at::Tensor& head_weight() const override { return weights_.head; }
  double logits_softcap() const override { return config_.logits_softcap; }

  void add_positions(Pass& pass, const at::Tensor& x) const override {
    if (config_.position_offset >= 0) return;
    // Of packed rows the longest document: some angles depend on the longest position.
    const int64_t time = pass.documents != nullptr ? std::ranges::max(pass.documents->lengths) : x.size(1);
    pass.rotary = rotary_.table(time, x);
    for (const DenseLayer& layer : config_.each_layer) {
      if (layer.rope != DenseLayer::Rope::local) continue;
      pass.local_rotary = local_rotary_.table(time, x);
      break;
    }
  }

  BlockNbytes block_nbytes(const MicroStep& of, size_t layer) const override {
    const bool frozen_base = info().lora.has_value();
    return dense_block_nbytes(
        config_, of,
        {.experts = config_.each_layer[layer].experts, .adapters = adapters_of(weights_.blocks[layer], frozen_base)});
  }

 private:
  static void add_experts(const Config& config, forecast::DecoderShape& shape) {
    const DenseExperts& experts = config.experts;
    const int64_t hidden = config.hidden, of_width = 3 * hidden;
    const int64_t passed = experts.per_token * experts.ffn + experts.shared_ffn;
    const int64_t gates = (experts.count + (experts.shared_ffn > 0 ? 1 : 0)) * hidden;
    int64_t routed = 0, layers = 0;
    for (const DenseLayer& layer : config.each_layer) {
      layers += layer.experts ? 1 : 0;
      routed += layer.experts ? of_width * passed + gates : of_width * config.ffn;
    }
    if (layers == 0) return;
    shape.ffn = (layers * passed + (config.layers - layers) * config.ffn) / config.layers;
    shape.routed_numel = routed;
    const int64_t all = of_width * (experts.count * experts.ffn + experts.shared_ffn) + gates;
    shape.most_numel = shape.attention_numel() + std::max(all, layers < config.layers ? of_width * config.ffn : 0);
  }

  static DecoderParts with_experts(DecoderParts parts, const Config& config) {
    ExpertsInfo& info = parts.info.experts;
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      if (config.each_layer[static_cast<size_t>(layer)].experts) info.layers.push_back(layer);
    }
    if (info.layers.empty()) return parts;
    info.count = config.experts.count;
    info.per_token = config.experts.per_token;
    info.balance = config.experts.balance;
    return parts;
  }

  // Attention and the feed-forward part read the block's input, through two norms or one.
  at::Tensor parallel_block(const Pass& pass, size_t layer, const at::Tensor& input) const {
    const DenseBlock& b = weights_.blocks[layer];
    const DenseNorm& ffn_norm = config_.shared_norm ? b.attention_norm : b.ffn_norm;
    const auto [beside, read] = fork_norm(input, b.attention_norm);
    const at::Tensor h = config_.shared_norm ? read : norm(input, ffn_norm);
    const at::Tensor attended = attention(pass, layer, operand(pass, read, input, b.attention_norm));
    const at::Tensor fed = feed_forward(pass, b, operand(pass, h, input, ffn_norm));
    return to_add(pass, fed, b.ffn_after).add(to_add(pass, attended, b.attention_after)).add(beside);
  }

  struct Heads {
    at::Tensor q, k, v;  // [batch, time, heads, dim], twice [batch, time, kv_heads, dim]
  };

  Heads heads_of(const Pass& pass, const DenseBlock& b, const ops::Operand& read) const {
    const int64_t dim = config_.head_dim;
    const auto split = [&](const at::Tensor& x) { return x.unflatten(-1, {-1, dim}); };
    if (config_.qkv_layout == QkvLayout::separate) {
      std::vector<at::Tensor> qkv = multiply_each(pass, read, {&b.q, &b.k, &b.v});
      if (config_.qk_norm == QkNorm::whole) {
        qkv[0] = head_norm(qkv[0], b.q_norm);
        qkv[1] = head_norm(qkv[1], b.k_norm);
      }
      return {split(qkv[0]), split(qkv[1]), split(qkv[2])};
    }
    const at::Tensor qkv = multiply(pass, read, b.qkv);
    if (config_.qkv_layout == QkvLayout::side_by_side) {
      const int64_t q = config_.q_width(), kv = config_.kv_width();
      return {split(qkv.narrow(-1, 0, q)), split(qkv.narrow(-1, q, kv)), split(qkv.narrow(-1, q + kv, kv))};
    }
    const int64_t group = config_.heads / config_.kv_heads;
    const at::Tensor groups = qkv.unflatten(-1, {config_.kv_heads, group + 2, dim});
    return {groups.narrow(3, 0, group).flatten(2, 3), groups.select(3, group), groups.select(3, group + 1)};
  }

  at::Tensor attention(const Pass& pass, size_t layer, const ops::Operand& read) const {
    const DenseBlock& b = weights_.blocks[layer];
    const DenseLayer& kind = config_.each_layer[layer];
    Heads heads = heads_of(pass, b, read);
    if (config_.qk_norm == QkNorm::heads) {
      heads.q = head_norm(heads.q, b.q_norm);
      heads.k = head_norm(heads.k, b.k_norm);
    }
    const bool turns = config_.position_offset < 0 && kind.rope != DenseLayer::Rope::none;
    const auto [q, k] =
        turns ? ops::rotate(heads.q, heads.k, kind.rope == DenseLayer::Rope::local ? pass.local_rotary : pass.rotary)
              : ops::Rotated{heads.q.transpose(1, 2), heads.k.transpose(1, 2)};
    const Attention how = {.scale = config_.attention_scale,
                           .softcap = config_.attention_softcap,
                           .window = kind.window,
                           .dropout = config_.attention_dropout,
                           .documents = pass.documents.get()};
    return multiply(pass, causal_attention(q, k, heads.v.transpose(1, 2), how, pass.randomness), b.o);
  }

  at::Tensor feed_forward(const Pass& pass, const DenseBlock& b, const ops::Operand& read) const {
    if (b.mixture.router.defined()) return dense_mixture(pass, config_, b, read);
    if (!config_.gated) {
      const at::Tensor inner = multiply(pass, read, b.up);
      const ops::Operand made =
          pass.operand(ops::activate(inner, config_.activation), ops::activation_origin(inner, config_.activation));
      return multiply(pass, made, b.down);
    }
    const std::vector<at::Tensor> gate_up =
        config_.gate_beside_up ? halves(multiply(pass, read, b.gate_up)) : multiply_each(pass, read, {&b.gate, &b.up});
    if (config_.activation == Activation::silu && !config_.ffn_bias && !b.down.adapter.is_there()) {
      return ops::swiglu_linear(pass.matmul, gate_up[0], gate_up[1], b.down.weight,
                                pass.remakes ? ops::Product::remade : ops::Product::kept);
    }
    const ops::Operand made = pass.operand(ops::activate_gated(gate_up[0], gate_up[1], config_.activation),
                                           ops::gated_origin(gate_up[0], gate_up[1], config_.activation));
    return multiply(pass, made, b.down);
  }

  static at::Tensor multiply(const Pass& pass, const ops::Operand& x, const DenseMatrix& by) {
    return multiply_each(pass, x, {&by})[0];
  }
  // Matrices on one x, each with its adapter.
  static std::vector<at::Tensor> multiply_each(const Pass& pass, const ops::Operand& x,
                                               const std::vector<const DenseMatrix*>& by) {
    std::vector<AdaptedLinear> matrices;
    for (const DenseMatrix* matrix : by) matrices.push_back({matrix->weight, matrix->bias, matrix->adapter});
    return adapted_linears(pass.matmul, x, matrices, pass.randomness);
  }

  // On a GPU what reads them copies views: copied here, the copies are all that is kept.
  static std::vector<at::Tensor> halves(const at::Tensor& x) {
    std::vector<at::Tensor> both = x.chunk(2, -1);
    if (x.is_cuda()) {
      for (at::Tensor& half : both) half = half.contiguous();
    }
    return both;
  }

  // What a part gave, as it is added to what stands beside it.
  at::Tensor to_add(const Pass& pass, const at::Tensor& given, const DenseNorm& after) const {
    const at::Tensor normed = after.weight.defined() ? norm(given, after) : given;
    const at::Tensor dropped = dropout(normed, config_.residual_dropout, pass.randomness);
    return config_.residual_scale == 1 ? dropped : dropped.mul(config_.residual_scale);
  }

  // Norms by the family's kind. Without a weight there is none, and x is given as it is.
  at::Tensor norm(const at::Tensor& x, const DenseNorm& by) const {
    if (config_.norm == NormKind::layer) return ops::layer_norm(x, by.weight, by.bias, config_.norm_eps);
    return head_norm(x, by.weight);
  }
  at::Tensor head_norm(const at::Tensor& x, const at::Tensor& weight) const {
    return config_.norm == NormKind::rms_one ? ops::rms_norm_one(x, weight, config_.norm_eps)
                                             : ops::rms_norm(x, weight, config_.norm_eps);
  }
  ops::ForkedNorm fork_norm(const at::Tensor& x, const DenseNorm& by) const {
    if (!by.weight.defined()) return {x, x};
    switch (config_.norm) {
      case NormKind::rms: return ops::fork_rms_norm(x, by.weight, config_.norm_eps);
      case NormKind::layer: return ops::fork_layer_norm(x, by.weight, by.bias, config_.norm_eps);
      case NormKind::rms_one: break;
    }
    return {x, norm(x, by)};
  }
  ops::AddedNorm add_norm(const at::Tensor& x, const at::Tensor& given, const DenseNorm& by) const {
    if (by.weight.defined() && config_.norm == NormKind::rms) {
      return ops::add_rms_norm(x, given, by.weight, config_.norm_eps);
    }
    if (by.weight.defined() && config_.norm == NormKind::layer) {
      return ops::add_layer_norm(x, given, by.weight, by.bias, config_.norm_eps);
    }
    const at::Tensor sum = x.add(given);
    return {sum, by.weight.defined() ? norm(sum, by) : sum};
  }

  // What matrices read: x normed, with where it comes from.
  ops::Operand operand(const Pass& pass, const at::Tensor& normed, const at::Tensor& x, const DenseNorm& by) const {
    if (!by.weight.defined()) return normed;
    switch (config_.norm) {
      case NormKind::rms: return pass.operand(normed, {ops::Origin::Op::rms_norm, {x, by.weight}, config_.norm_eps});
      case NormKind::layer:
        return pass.operand(normed, {ops::Origin::Op::layer_norm, {x, by.weight, by.bias}, config_.norm_eps});
      case NormKind::rms_one: break;
    }
    return pass.operand(normed, {ops::Origin::Op::rms_norm_one, {x, by.weight}, config_.norm_eps});
  }

  DenseConfig config_;
  DenseWeights weights_;
  RopeTables rotary_, local_rotary_;
};

}  // namespace

Family dense_family() {
  Family family = {"dense", {}, &open_decoder<Dense>};
  for (const DenseFamily& row : dense_families()) family.types.push_back(row.type);
  return family;
}

}  // namespace shoal::models
