// See weights.h.
#include "models/dense/weights.h"

#include <fmt/format.h>

#include "models/dense/families.h"

namespace shoal::models {

namespace {

// Declares parts of the unit begun last; a part without a name is not there.
class Declaring {
 public:
  Declaring(const DenseConfig& config, ParameterList& list)
      : config_(config), list_(list), normal_(Init::normal(config.initializer_range)) {}

  DenseNorm norm(const std::string& prefix, const char* name) {
    if (*name == 0) return {};
    const bool from_zero = config_.norm == NormKind::rms_one;
    DenseNorm norm;
    norm.weight = list_.add(prefix + name + ".weight", {config_.hidden}, Init::constant(from_zero ? 0 : 1));
    if (config_.norm == NormKind::layer) norm.bias = list_.add(prefix + name + ".bias", {config_.hidden}, kZero);
    return norm;
  }

  // One that cannot have an adapter.
  DenseMatrix bare_matrix(const std::string& name, int64_t out, int64_t in) {
    DenseMatrix made;
    made.weight = list_.add(name + ".weight", {out, in}, normal_);
    return made;
  }

  DenseMatrix matrix(const std::string& name, int64_t out, int64_t in, bool makes_qv = false) {
    DenseMatrix made = bare_matrix(name, out, in);
    made.adapter = list_.adapt(name, {.out = out, .in = in, .makes_qv = makes_qv});
    return made;
  }

  void bias(DenseMatrix& of, const std::string& name, bool there) {
    if (there) of.bias = list_.add(name + ".bias", {of.weight.size(0)}, kZero);
  }

  DenseMatrix affine(const std::string& name, int64_t out, int64_t in, bool biased, bool makes_qv = false) {
    DenseMatrix made = matrix(name, out, in, makes_qv);
    bias(made, name, biased);
    return made;
  }

 private:
  static inline const Init kZero = Init::constant(0);
  const DenseConfig& config_;
  ParameterList& list_;
  Init normal_;
};

void declare_attention(const DenseConfig& config, const DenseNames& names, const std::string& prefix, DenseBlock& block,
                       ParameterList& list) {
  Declaring declare(config, list);
  const bool two_in_parallel = config.parallel && !config.shared_norm && *names.parallel_attention_norm != 0;
  block.attention_norm = declare.norm(prefix, two_in_parallel ? names.parallel_attention_norm : names.attention_norm);
  const int64_t q = config.q_width(), kv = config.kv_width();
  if (config.qkv_layout != QkvLayout::separate) {
    block.qkv = declare.affine(prefix + names.qkv, q + 2 * kv, config.hidden, config.qkv_bias, /*makes_qv=*/true);
  } else {
    block.q = declare.matrix(prefix + names.q, q, config.hidden, /*makes_qv=*/true);
    block.k = declare.matrix(prefix + names.k, kv, config.hidden);
    block.v = declare.matrix(prefix + names.v, kv, config.hidden, /*makes_qv=*/true);
    declare.bias(block.q, prefix + names.q, config.qkv_bias);
    declare.bias(block.k, prefix + names.k, config.qkv_bias);
    declare.bias(block.v, prefix + names.v, config.qkv_bias);
  }
  if (config.qk_norm != QkNorm::none) {
    const bool whole = config.qk_norm == QkNorm::whole;
    const Init init = Init::constant(config.norm == NormKind::rms_one ? 0 : 1);
    block.q_norm = list.add(prefix + names.q_norm + ".weight", {whole ? q : config.head_dim}, init);
    block.k_norm = list.add(prefix + names.k_norm + ".weight", {whole ? kv : config.head_dim}, init);
  }
  block.o = declare.affine(prefix + names.o, config.hidden, q, config.o_bias);
  block.attention_after = declare.norm(prefix, names.attention_after);
}

std::string gate_up_name(const DenseNames& names, const std::string& prefix) {
  return prefix + names.experts + ".gate_up_proj";
}
std::string down_name(const DenseNames& names, const std::string& prefix) {
  return prefix + names.experts + ".down_proj";
}
std::string router_name(const DenseNames& names, const std::string& prefix) {
  return prefix + names.router + ".weight";
}

// As files of a tensor for each expert have them.
std::vector<StoredPiece> router_piece(const DenseConfig& config, const DenseNames& names, const std::string& prefix) {
  return {{prefix + names.filed_router + ".weight", {config.experts.count, config.hidden}, 0}};
}
std::vector<StoredPiece> expert_pieces(const DenseConfig& config, const DenseNames& names, const std::string& prefix,
                                       bool down) {
  const int64_t ffn = config.experts.ffn, numel = ffn * config.hidden;
  std::vector<StoredPiece> pieces;
  for (int64_t expert = 0; expert < config.experts.count; ++expert) {
    const std::string of = fmt::format("{}{}.{}.", prefix, names.filed_experts, expert);
    if (down) {
      pieces.push_back({of + names.expert_down + ".weight", {config.hidden, ffn}, expert * numel});
    } else {
      pieces.push_back({of + names.expert_gate + ".weight", {ffn, config.hidden}, 2 * expert * numel});
      pieces.push_back({of + names.expert_up + ".weight", {ffn, config.hidden}, (2 * expert + 1) * numel});
    }
  }
  return pieces;
}

// By their names here and in files of a tensor for each expert: a target of LoRA may be any of them.
void refuse_adapters(const DenseConfig& config, const DenseNames& names, const std::string& prefix,
                     ParameterList& list) {
  for (const char* router : {names.router, names.filed_router}) list.refuse_adapter(prefix + router);
  list.refuse_adapter(gate_up_name(names, prefix));
  list.refuse_adapter(down_name(names, prefix));
  for (const bool down : {false, true}) {
    for (const StoredPiece& piece : expert_pieces(config, names, prefix, down)) {
      list.refuse_adapter(piece.name.substr(0, piece.name.rfind('.')));
    }
  }
}

void declare_mixture(const DenseConfig& config, const DenseNames& names, const std::string& prefix, DenseBlock& block,
                     ParameterList& list) {
  const Init normal = Init::normal(config.initializer_range);
  const int64_t count = config.experts.count, ffn = config.experts.ffn, hidden = config.hidden;
  refuse_adapters(config, names, prefix, list);
  block.mixture.router = list.add_pieced(router_name(names, prefix), {count, hidden}, normal,
                                         [&] { return router_piece(config, names, prefix); });
  block.mixture.gate_up = list.add_pieced(gate_up_name(names, prefix), {count, 2 * ffn, hidden}, normal,
                                          [&] { return expert_pieces(config, names, prefix, /*down=*/false); });
  block.mixture.down = list.add_pieced(down_name(names, prefix), {count, hidden, ffn}, normal,
                                       [&] { return expert_pieces(config, names, prefix, /*down=*/true); });
  if (config.experts.shared_ffn == 0) return;
  Declaring declare(config, list);
  const std::string shared = prefix + names.shared_expert;
  const auto bare = [&](const std::string& name, int64_t out, int64_t in) {
    list.refuse_adapter(name);
    return declare.bare_matrix(name, out, in);
  };
  block.gate = bare(shared + ".gate_proj", config.experts.shared_ffn, hidden);
  block.up = bare(shared + ".up_proj", config.experts.shared_ffn, hidden);
  block.down = bare(shared + ".down_proj", hidden, config.experts.shared_ffn);
  block.mixture.shared_gate = bare(prefix + names.shared_gate, 1, hidden).weight;
}

void declare_ffn(const DenseConfig& config, const DenseNames& names, const std::string& prefix, DenseBlock& block,
                 ParameterList& list) {
  Declaring declare(config, list);
  const bool two_in_parallel = config.parallel && *names.parallel_ffn_norm != 0;
  if (!config.shared_norm) {
    block.ffn_norm = declare.norm(prefix, two_in_parallel ? names.parallel_ffn_norm : names.ffn_norm);
  }
  if (config.gate_beside_up) {
    block.gate_up = declare.affine(prefix + names.gate_up, 2 * config.ffn, config.hidden, config.ffn_bias);
  } else {
    if (config.gated) block.gate = declare.affine(prefix + names.gate, config.ffn, config.hidden, config.ffn_bias);
    block.up = declare.affine(prefix + names.up, config.ffn, config.hidden, config.ffn_bias);
  }
  block.down = declare.affine(prefix + names.down, config.hidden, config.ffn, config.ffn_bias);
  block.ffn_after = declare.norm(prefix, names.ffn_after);
}

}  // namespace

DenseAdapters adapters_of(const DenseBlock& block, bool frozen_base) {
  DenseAdapters found;
  found.frozen_base = frozen_base;
  const auto see = [&](const DenseMatrix& matrix, bool& read) {
    if (!matrix.adapter.is_there()) return;
    found.ranks += matrix.adapter.a.size(0);
    if (matrix.adapter.dropout > 0) {
      found.dropped += matrix.adapter.a.size(1);
    } else {
      read = true;
    }
  };
  for (const DenseMatrix* matrix : {&block.q, &block.k, &block.v, &block.qkv}) see(*matrix, found.read_attention_input);
  see(block.o, found.read_attended);
  for (const DenseMatrix* matrix : {&block.gate, &block.up, &block.gate_up}) see(*matrix, found.read_ffn_input);
  see(block.down, found.read_ffn_product);
  return found;
}

DenseWeights declare_dense_weights(const DenseConfig& config, ParameterList& list) {
  const DenseNames& names = dense_family_of(config).names;
  const Init normal = Init::normal(config.initializer_range);
  DenseWeights weights;
  list.begin_unit(names.embedding);
  const Init embedding =
      config.padding_token ? normal.with_zeros(*config.padding_token * config.hidden, config.hidden) : normal;
  weights.embedding = list.add(fmt::format("{}.weight", names.embedding), {config.vocab, config.hidden}, embedding);
  if (config.position_offset >= 0) {
    weights.positions = list.add(fmt::format("{}.weight", names.positions),
                                 {config.position_offset + config.max_positions, config.hidden}, normal);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = fmt::format("{}.{}", names.layer, layer);
    list.begin_unit(name);
    DenseBlock& block = weights.blocks.emplace_back();
    declare_attention(config, names, name + ".", block, list);
    if (config.each_layer[static_cast<size_t>(layer)].experts) {
      block.ffn_norm = Declaring(config, list).norm(name + ".", names.ffn_norm);
      declare_mixture(config, names, name + ".", block, list);
    } else {
      declare_ffn(config, names, name + ".", block, list);
    }
  }
  list.begin_unit(names.head);
  weights.norm = Declaring(config, list).norm("", names.norm);
  const std::string head = fmt::format("{}.weight", names.head);
  if (config.tied) {
    weights.head = weights.embedding;
    list.add_tied(head, weights.embedding);
  } else {
    weights.head = list.add(head, {config.vocab, config.hidden}, normal);
  }
  return weights;
}

StoredPieces dense_pieces(const DenseConfig& config) {
  const DenseNames& names = dense_family_of(config).names;
  StoredPieces pieces;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.each_layer[static_cast<size_t>(layer)].experts) continue;
    const std::string prefix = fmt::format("{}.{}.", names.layer, layer);
    pieces[router_name(names, prefix)] = router_piece(config, names, prefix);
    pieces[gate_up_name(names, prefix)] = expert_pieces(config, names, prefix, /*down=*/false);
    pieces[down_name(names, prefix)] = expert_pieces(config, names, prefix, /*down=*/true);
  }
  return pieces;
}

}  // namespace shoal::models
