// See model.h.
#include "models/gpt2/model.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/gpt2/config.h"
#include "models/open_decoder.h"
#include "models/ops/activation.h"
#include "models/ops/attention_pieces.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"

namespace shoal::models {

namespace {

constexpr const char* kArchitecture = "GPT2LMHeadModel";
constexpr const char* kQkv = "attn.c_attn";

struct Affine {
  at::Tensor weight, bias;
  Adapter adapter = {};  // of matrices
};

struct Block {
  Affine attention_norm;   // [hidden]
  Affine qkv;              // [hidden, 3 * hidden], [3 * hidden]
  Affine attention_out;    // [hidden, hidden], [hidden]
  Affine ffn_norm;         // [hidden]
  Affine ffn_in, ffn_out;  // [hidden, ffn], [ffn, hidden], and their biases
};

struct Weights {
  at::Tensor tokens;     // [vocab, hidden]
  at::Tensor positions;  // [max_positions, hidden]
  std::vector<Block> blocks;
  Affine norm;      // [hidden]
  at::Tensor head;  // [vocab, hidden]; the tokens' embedding when tied
};

Affine declare_norm(const Gpt2Config& config, const std::string& name, ParameterList& list) {
  return {list.add(name + ".weight", {config.hidden}, Init::constant(1)),
          list.add(name + ".bias", {config.hidden}, Init::constant(0))};
}

Affine declare_matrix(const std::string& name, int64_t in, int64_t out, double deviation, ParameterList& list) {
  Affine made;
  made.weight = list.add(name + ".weight", {in, out}, Init::normal(deviation));
  made.bias = list.add(name + ".bias", {out}, Init::constant(0));
  made.adapter = list.adapt(name, {.out = out, .in = in, .makes_qv = name.ends_with(kQkv), .transposed = true});
  return made;
}

Block declare_block(const Gpt2Config& config, const std::string& prefix, ParameterList& list) {
  const double deviation = config.initializer_range;
  // What adds to the residual stream begins smaller, so that the stream does not grow with the number of blocks.
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  Block block;
  block.attention_norm = declare_norm(config, prefix + "ln_1", list);
  block.qkv = declare_matrix(prefix + kQkv, config.hidden, 3 * config.hidden, deviation, list);
  block.attention_out = declare_matrix(prefix + "attn.c_proj", config.hidden, config.hidden, residual, list);
  block.ffn_norm = declare_norm(config, prefix + "ln_2", list);
  block.ffn_in = declare_matrix(prefix + "mlp.c_fc", config.hidden, config.ffn, deviation, list);
  block.ffn_out = declare_matrix(prefix + "mlp.c_proj", config.ffn, config.hidden, residual, list);
  return block;
}

Weights declare_weights(const Gpt2Config& config, ParameterList& list) {
  const Init normal = Init::normal(config.initializer_range);
  Weights weights;
  list.begin_unit("transformer.wte");
  weights.tokens = list.add("transformer.wte.weight", {config.vocab, config.hidden}, normal);
  weights.positions = list.add("transformer.wpe.weight", {config.max_positions, config.hidden}, normal);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = fmt::format("transformer.h.{}", layer);
    list.begin_unit(name);
    weights.blocks.push_back(declare_block(config, name + ".", list));
  }
  list.begin_unit("lm_head");
  weights.norm = declare_norm(config, "transformer.ln_f", list);
  if (config.tied) {
    weights.head = weights.tokens;
    list.add_tied("lm_head.weight", weights.tokens);
  } else {
    weights.head = list.add("lm_head.weight", {config.vocab, config.hidden}, normal);
  }
  return weights;
}

at::Tensor apply(const Pass& pass, const ops::Operand& x, const Affine& matrix) {
  const at::Tensor weight = matrix.weight.t();
  return adapted_linears(pass.matmul, x, {{weight, matrix.bias, matrix.adapter}}, pass.randomness)[0];
}

class Gpt2 final : public Decoder {
 public:
  using Config = Gpt2Config;
  static Config read_config(const HfConfig& config) { return read_gpt2_config(config); }
  static FileNames file_names(const Config&) {
    // Old files hold the causal mask of each block as attn.bias and attn.masked_bias.
    return {.base_prefix = "transformer.", .ignored_suffixes = {".attn.bias", ".attn.masked_bias"}};
  }
  static Weights declare(const Config& config, ParameterList& list) { return declare_weights(config, list); }
  static forecast::DecoderShape shape_of(const Config& config) {
    return {.hidden = config.hidden,
            .layers = config.layers,
            .heads = config.heads,
            .q_width = config.hidden,
            .kv_width = config.hidden,
            .ffn = config.ffn,
            .gated = false,
            .vocab = config.vocab,
            .tied = config.tied};
  }
  static std::string export_config(const HfConfig& config, const Config&) {
    return json::write(export_hf_config(config.root(), kArchitecture), 2) + "\n";
  }

  Gpt2(DecoderParts parts, Config config, Weights weights)
      : Decoder(std::move(parts)), config_(std::move(config)), weights_(std::move(weights)) {}

 protected:
  at::Tensor embed(const Pass& pass, const at::Tensor& tokens) const override {
    const at::Tensor positions = pass.documents != nullptr
                                     ? at::embedding(weights_.positions, pass.documents->positions)
                                     : weights_.positions.narrow(0, 0, tokens.size(1));
    return dropout(at::embedding(weights_.tokens, tokens).add(positions), config_.embedding_dropout, pass.randomness);
  }

  at::Tensor block(const Pass& pass, size_t layer, const at::Tensor& input) const override {
    const Block& b = weights_.blocks[layer];
    const int64_t dim = config_.hidden / config_.heads;
    const auto [beside, normed] =
        ops::fork_layer_norm(input, b.attention_norm.weight, b.attention_norm.bias, config_.norm_eps);
    const std::vector<at::Tensor> qkv =
        apply(pass, pass.operand(normed, norm_of(input, b.attention_norm)), b.qkv).chunk(3, -1);
    const at::Tensor attended =
        causal_attention(split_heads(qkv[0], dim), split_heads(qkv[1], dim), split_heads(qkv[2], dim),
                         {.dropout = config_.attention_dropout, .documents = pass.documents.get()}, pass.randomness);
    const auto [x, h] = ops::add_layer_norm(
        beside, dropout(apply(pass, attended, b.attention_out), config_.residual_dropout, pass.randomness),
        b.ffn_norm.weight, b.ffn_norm.bias, config_.norm_eps);
    const at::Tensor inner = apply(pass, pass.operand(h, norm_of(x, b.ffn_norm)), b.ffn_in);
    const auto gelu = config_.exact_gelu ? ops::Origin::Op::gelu_exact : ops::Origin::Op::gelu_tanh;
    const ops::Operand hidden = pass.operand(ops::gelu(inner, config_.exact_gelu), {gelu, {inner}});
    return x.add(dropout(apply(pass, hidden, b.ffn_out), config_.residual_dropout, pass.randomness));
  }

  at::Tensor last_norm(const at::Tensor& x) const override { return norm(x, weights_.norm); }
  const at::Tensor& head_weight() const override { return weights_.head; }

  BlockNbytes block_nbytes(const MicroStep& of, size_t /*layer*/) const override {
    // In widths of a token: x twice, two norms' outputs; q, k, v, attention's output; the inner layer before and after
    // GELU. Dropout keeps a byte an element where it is on; attention with dropout keeps its weights, in fp32 before it
    // and in the dtype after.
    const size_t rows = of.rows(), element = nbytes_of(of.dtype);
    const auto hidden = static_cast<size_t>(config_.hidden);
    const auto ffn = static_cast<size_t>(config_.ffn);
    // A frozen matrix keeps what it reads for its adapter alone.
    size_t norms = 2, products = 1, of_adapters = 0;
    if (info().lora) {
      norms = products = 0;
      for (const Block& block : weights_.blocks) {
        const auto reads = [](const Affine& matrix) {  // what dropout made of it is counted below
          return size_t{matrix.adapter.is_there() && matrix.adapter.dropout == 0 ? 1u : 0u};
        };
        norms = std::max(norms, reads(block.qkv) + reads(block.ffn_in));
        products = std::max(products, reads(block.ffn_out));
        size_t nbytes = 0;
        for (const Affine* matrix : {&block.qkv, &block.attention_out, &block.ffn_in, &block.ffn_out}) {
          const Adapter& adapter = matrix->adapter;
          if (!adapter.is_there()) continue;
          nbytes += static_cast<size_t>(adapter.a.size(0)) * element;
          if (adapter.dropout > 0) nbytes += static_cast<size_t>(adapter.a.size(1)) * (1 + element);
        }
        of_adapters = std::max(of_adapters, nbytes);
      }
    }
    size_t nbytes = rows * (element * ((6 + norms) * hidden + (1 + products) * ffn) + of_adapters);
    if (config_.residual_dropout > 0) nbytes += rows * 2 * hidden;
    if (config_.attention_dropout > 0) {
      const size_t scores = rows * static_cast<size_t>(config_.heads * of.time);
      nbytes += scores * (4 + element + 1);
    }
    const size_t remade = rows * element * (norms * hidden + products * ffn);
    const size_t whole = rows * element * (8 * hidden + 2 * ffn);
    if (!of.is_fused()) return {nbytes, remade, std::max(nbytes, whole) / 2};
    size_t in_flight = rows * element * 2 * (ffn + hidden);
    if (of.deterministic && element == 2 && config_.attention_dropout == 0) {
      const ops::AttentionShape shape = {of.batch, config_.heads, config_.heads, of.time,
                                         config_.hidden / config_.heads};
      in_flight = std::max(in_flight, ops::backward_in_flight_nbytes(shape, config_.hidden, 2 * config_.ffn));
    }
    if (!of.fp8) return {nbytes, remade, in_flight};
    // Inputs of matrices are kept in 8 bits: those that selective recompute makes again instead of in the dtype, and
    // attention's output besides. Backward has the inner layer once more in the dtype, and a gradient both ways round.
    const size_t in_fp8 = rows * (2 * hidden + ffn);
    const size_t in_dtype = info().lora ? 0 : remade;  // what adapters read they keep in the dtype all the same
    return {nbytes - in_dtype + in_fp8 + rows * hidden, in_fp8, in_flight + rows * ffn * (element + 2)};
  }

 private:
  at::Tensor norm(const at::Tensor& x, const Affine& scale) const {
    return ops::layer_norm(x, scale.weight, scale.bias, config_.norm_eps);
  }
  ops::Origin norm_of(const at::Tensor& x, const Affine& scale) const {
    return {ops::Origin::Op::layer_norm, {x, scale.weight, scale.bias}, config_.norm_eps};
  }

  Gpt2Config config_;
  Weights weights_;
};

}  // namespace

Family gpt2_family() { return {"gpt2", {{"gpt2", kArchitecture, "GPT2Model"}}, &open_decoder<Gpt2>}; }

}  // namespace shoal::models
