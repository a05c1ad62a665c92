// See model.h.
#include "models/llama/model.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include "base/check.h"
#include "models/llama/config.h"
#include "models/llama/rope.h"
#include "models/open_decoder.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"
#include "models/ops/swiglu_linear.h"

namespace shoal::models {

namespace {

struct Block {
  at::Tensor attention_norm;            // [hidden]
  at::Tensor q, k, v;                   // [heads * dim, hidden], [kv_heads * dim, hidden] twice
  at::Tensor q_bias, k_bias, v_bias;    // Qwen2
  at::Tensor q_norm, k_norm;            // [dim], Qwen3
  at::Tensor o;                         // [hidden, heads * dim]
  at::Tensor ffn_norm, gate, up, down;  // [hidden], [ffn, hidden] twice, [hidden, ffn]
};

struct Weights {
  at::Tensor embedding;  // [vocab, hidden]
  std::vector<Block> blocks;
  at::Tensor norm;  // [hidden]
  at::Tensor head;  // [vocab, hidden]; the embedding itself when tied
};

Block declare_block(const LlamaConfig& config, const std::string& prefix, ParameterList& list) {
  const Init normal = Init::normal(config.initializer_range);
  const Init one = Init::constant(1);
  const Init zero = Init::constant(0);
  const int64_t q_width = config.heads * config.head_dim;
  const int64_t kv_width = config.kv_heads * config.head_dim;
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  Block block;
  block.attention_norm = list.add(prefix + "input_layernorm.weight", {config.hidden}, one);
  block.q = list.add(attention + "q_proj.weight", {q_width, config.hidden}, normal);
  block.k = list.add(attention + "k_proj.weight", {kv_width, config.hidden}, normal);
  block.v = list.add(attention + "v_proj.weight", {kv_width, config.hidden}, normal);
  if (config.qkv_bias) {
    block.q_bias = list.add(attention + "q_proj.bias", {q_width}, zero);
    block.k_bias = list.add(attention + "k_proj.bias", {kv_width}, zero);
    block.v_bias = list.add(attention + "v_proj.bias", {kv_width}, zero);
  }
  if (config.qk_norms) {
    block.q_norm = list.add(attention + "q_norm.weight", {config.head_dim}, one);
    block.k_norm = list.add(attention + "k_norm.weight", {config.head_dim}, one);
  }
  block.o = list.add(attention + "o_proj.weight", {config.hidden, q_width}, normal);
  block.ffn_norm = list.add(prefix + "post_attention_layernorm.weight", {config.hidden}, one);
  block.gate = list.add(mlp + "gate_proj.weight", {config.ffn, config.hidden}, normal);
  block.up = list.add(mlp + "up_proj.weight", {config.ffn, config.hidden}, normal);
  block.down = list.add(mlp + "down_proj.weight", {config.hidden, config.ffn}, normal);
  return block;
}

Weights declare_weights(const LlamaConfig& config, ParameterList& list) {
  const Init normal = Init::normal(config.initializer_range);
  Weights weights;
  list.begin_unit("model.embed_tokens");
  const Init embedding =
      config.padding_token ? normal.with_zeros(*config.padding_token * config.hidden, config.hidden) : normal;
  weights.embedding = list.add("model.embed_tokens.weight", {config.vocab, config.hidden}, embedding);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = fmt::format("model.layers.{}", layer);
    list.begin_unit(name);
    weights.blocks.push_back(declare_block(config, name + ".", list));
  }
  list.begin_unit("lm_head");
  weights.norm = list.add("model.norm.weight", {config.hidden}, Init::constant(1));
  if (config.tied) {
    weights.head = weights.embedding;
    list.add_tied("lm_head.weight", weights.embedding);
  } else {
    weights.head = list.add("lm_head.weight", {config.vocab, config.hidden}, normal);
  }
  return weights;
}

std::string architecture_of(const std::string& model_type) {
  for (const ModelType& type : llama_family().types) {
    if (type.model_type == model_type) return type.architecture;
  }
  SHOAL_CHECK(false, "{}", model_type);
  return "";
}

class Llama final : public Decoder {
 public:
  using Config = LlamaConfig;
  static Config read_config(const HfConfig& config) { return read_llama_config(config); }
  static FileNames file_names() { return {.base_prefix = "model.", .ignored_suffixes = {".rotary_emb.inv_freq"}}; }
  static Weights declare(const Config& config, ParameterList& list) { return declare_weights(config, list); }
  static forecast::DecoderShape shape_of(const Config& config) {
    return {.hidden = config.hidden,
            .layers = config.layers,
            .heads = config.heads,
            .q_width = config.heads * config.head_dim,
            .kv_width = config.kv_heads * config.head_dim,
            .ffn = config.ffn,
            .gated = true,
            .vocab = config.vocab,
            .tied = config.tied};
  }
  static std::string export_config(const HfConfig& config, const Config& read) {
    return export_llama_config(config, read, architecture_of(read.model_type));
  }

  Llama(DecoderParts parts, Config config, Weights weights)
      : Decoder(std::move(parts)),
        config_(std::move(config)),
        weights_(std::move(weights)),
        rotary_(rope_frequencies(config_.rope, config_.head_dim)) {}

 protected:
  at::Tensor embed(const Pass&, const at::Tensor& tokens) const override {
    constexpr int64_t kNoPadding = -1;
    return at::embedding(weights_.embedding, tokens, config_.padding_token.value_or(kNoPadding));
  }

  at::Tensor block(const Pass& pass, size_t layer, const at::Tensor& input) const override {
    const Block& b = weights_.blocks[layer];
    const auto [beside, normed] = ops::fork_rms_norm(input, b.attention_norm, config_.norm_eps);
    const ops::Operand h = pass.operand(normed, norm_of(input, b.attention_norm));
    const std::vector<at::Tensor> qkv = ops::linears(pass.matmul, h, {b.q, b.k, b.v}, {b.q_bias, b.k_bias, b.v_bias});
    at::Tensor q = qkv[0].unflatten(-1, {-1, config_.head_dim});
    at::Tensor k = qkv[1].unflatten(-1, {-1, config_.head_dim});
    const at::Tensor v = split_heads(qkv[2], config_.head_dim);
    if (config_.qk_norms) {
      q = norm(q, b.q_norm);
      k = norm(k, b.k_norm);
    }
    const auto [turned_q, turned_k] = ops::rotate(q, k, pass.rotary);
    const at::Tensor attended = causal_attention(turned_q, turned_k, v, config_.attention_dropout, pass.randomness);
    const auto [x, h2] =
        ops::add_rms_norm(beside, ops::linear(pass.matmul, attended, b.o), b.ffn_norm, config_.norm_eps);
    const std::vector<at::Tensor> gate_up =
        ops::linears(pass.matmul, pass.operand(h2, norm_of(x, b.ffn_norm)), {b.gate, b.up});
    return x.add(ops::swiglu_linear(pass.matmul, gate_up[0], gate_up[1], b.down,
                                    pass.remakes ? ops::Product::remade : ops::Product::kept));
  }

  at::Tensor last_norm(const at::Tensor& x) const override { return norm(x, weights_.norm); }
  const at::Tensor& head_weight() const override { return weights_.head; }

  void add_positions(Pass& pass, const at::Tensor& x) const override { pass.rotary = rotary_.table(x.size(1), x); }

  BlockNbytes block_nbytes(const MicroStep& of) const override {
    // In widths of a token: x twice, two norms with their normalised input in fp32 and their output; q, k after
    // rotation, v, attention's output; gate, its silu, up, their product.
    const size_t rows = of.rows(), element = nbytes_of(of.dtype);
    const auto hidden = static_cast<size_t>(config_.hidden);
    const auto q_width = static_cast<size_t>(config_.heads * config_.head_dim);
    const auto kv_width = static_cast<size_t>(config_.kv_heads * config_.head_dim);
    const auto ffn = static_cast<size_t>(config_.ffn);
    const size_t in_dtype = 4 * hidden + 2 * q_width + 2 * kv_width;
    if (of.is_fused()) {
      // No fp32 but two norms' and attention's numbers a row; gate and up alone. Backward of the feed-forward layer
      // holds the gradients of its product, of gate and of up.
      const size_t kept = (in_dtype + 2 * ffn) * element + (2 + static_cast<size_t>(config_.heads)) * 4;
      const size_t in_flight = (3 * ffn + 2 * hidden) * element;
      if (!of.fp8) return {rows * kept, rows * 2 * hidden * element, rows * in_flight};
      // Inputs of matrices are kept in 8 bits: norms' outputs instead of in the dtype, and beside what attention and
      // the product keep of theirs. Backward has the product once more in the dtype, and a gradient both ways round.
      const size_t in_fp8 = kept - 2 * hidden * element + 2 * hidden + q_width + ffn;
      return {rows * in_fp8, rows * (2 * hidden + ffn), rows * (in_flight + ffn * element + 2 * ffn)};
    }
    const size_t kept = rows * ((in_dtype + 4 * ffn) * element + 2 * hidden * 4);
    // A norm in 16 bits does not keep its input, so that the input is kept where its output is made again.
    const size_t remade = rows * (of.dtype == DType::f32 ? 2 * hidden + ffn : ffn) * element;
    return {kept, remade, kept / 2};
  }

 private:
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const {
    return ops::rms_norm(x, weight, config_.norm_eps);
  }
  ops::Origin norm_of(const at::Tensor& x, const at::Tensor& weight) const {
    return {ops::Origin::Op::rms_norm, {x, weight}, config_.norm_eps};
  }

  LlamaConfig config_;
  Weights weights_;
  RopeTables rotary_;
};

}  // namespace

Family llama_family() {
  return {"llama",
          {{"llama", "LlamaForCausalLM", "LlamaModel"},
           {"mistral", "MistralForCausalLM", "MistralModel"},
           {"qwen2", "Qwen2ForCausalLM", "Qwen2Model"},
           {"qwen3", "Qwen3ForCausalLM", "Qwen3Model"}},
          &open_decoder<Llama>};
}

}  // namespace shoal::models
