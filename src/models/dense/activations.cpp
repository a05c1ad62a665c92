// See activations.h. All counts are bytes of one token, until the end.
#include "models/dense/activations.h"

#include <algorithm>

#include "kernels/narrow_arithmetic.h"
#include "models/ops/attention.h"
#include "models/ops/attention_pieces.h"

namespace shoal::models {

namespace {

struct Widths {
  size_t hidden, q, kv, ffn, heads;
  size_t element;
  size_t before;  // norms whose output a matrix reads
  size_t after;   // norms of what attention and the feed-forward part give
  bool narrow;    // 16 bits
  bool chunked;   // attention by ops/attention.h, in some layer
};

// Whether a matrix keeps what it reads: for its own gradient, or for its adapter's.
struct Reads {
  bool trains_base, attention_input, ffn_input, ffn_product;

  explicit Reads(const DenseAdapters& adapters)
      : trains_base(!adapters.frozen_base),
        attention_input(trains_base || adapters.read_attention_input),
        ffn_input(trains_base || adapters.read_ffn_input),
        ffn_product(trains_base || adapters.read_ffn_product) {}

  // Of `before` norms' outputs, those that are kept.
  size_t norms(size_t before) const {
    const size_t inputs = (attention_input ? 1 : 0) + (ffn_input ? 1 : 0);
    return std::min(before, inputs);
  }
};

bool is_chunked(const DenseConfig& config, const DenseLayer& layer, int64_t time) {
  return ops::needs_chunks(config.attention_softcap, layer.window, time);
}

Widths widths_of(const DenseConfig& config, const MicroStep& of) {
  Widths w{};
  w.hidden = static_cast<size_t>(config.hidden);
  w.q = static_cast<size_t>(config.q_width());
  w.kv = static_cast<size_t>(config.kv_width());
  w.ffn = static_cast<size_t>(config.ffn);
  w.heads = static_cast<size_t>(config.heads);
  w.element = nbytes_of(of.dtype);
  w.before = !config.norm_before ? 0 : config.shared_norm ? 1 : 2;
  w.after = config.norm_after ? 2 : 0;
  w.narrow = of.dtype != DType::f32;
  w.chunked = std::any_of(config.each_layer.begin(), config.each_layer.end(),
                          [&](const DenseLayer& layer) { return is_chunked(config, layer, of.time); });
  return w;
}

// Inputs of the norms, and of the matrices behind them. What is normed in fp32 is kept in fp32: on the CPU by the
// library's RMS norm twice, before it is divided and, where its weight is trained, after; on a GPU where it is normed
// by 1 + weight.
size_t norms_nbytes(const DenseConfig& config, const Widths& w, const Reads& reads, bool fused) {
  const bool rms_in_fp32 = config.norm != NormKind::layer && (!fused || (config.norm == NormKind::rms_one && w.narrow));
  const size_t input = !rms_in_fp32 ? w.element : fused || !reads.trains_base ? 0 : 4;
  const size_t each = input + (rms_in_fp32 ? 4 : 0);
  const size_t inputs = config.parallel && w.before == 2 && !rms_in_fp32 ? 1 : w.before;  // two norms of one x
  const size_t read = reads.norms(w.before == 0 ? 2 : w.before) * w.hidden;               // what the matrices read
  size_t nbytes = read * w.element + (inputs + w.after) * w.hidden * each;
  if (config.qk_norm != QkNorm::none) nbytes += (w.q + w.kv) * each;
  return nbytes + (fused ? (w.before + w.after) * 4 : 0);
}

size_t attention_nbytes(const DenseConfig& config, const Widths& w, const MicroStep& of, bool fused) {
  // q, k after rotation, v, attention's output; v of one matrix is a part of all of it.
  size_t widths = 2 * w.q + 2 * w.kv;
  if (config.qkv_layout != QkvLayout::separate) widths += w.q + w.kv;
  size_t nbytes = widths * w.element + (fused || w.chunked ? w.heads * 4 : 0);
  if (config.attention_dropout > 0) nbytes += w.heads * static_cast<size_t>(of.time) * (4 + w.element + 1);
  return nbytes;
}

// Widths of the feed-forward part that are kept: gate, what the activation function made of it, up, their product.
size_t ffn_widths(const DenseConfig& config, const Reads& reads, bool fused) {
  const size_t unread = reads.ffn_product ? 0 : 1;
  if (!config.gated) return config.activation == Activation::relu ? 1 : 2 - unread;
  if (!fused || config.activation != Activation::silu || config.ffn_bias) return 4 - unread;
  return !reads.trains_base && reads.ffn_product ? 3 : 2;
}

// What backward makes of a chunk: its weights, the slope of a cap, the gradient of the scores, in fp32 and, where it is
// narrower, in the dtype; and the sums of the gradients of k and v, in fp32. Of the layer whose chunk is the largest.
size_t chunk_nbytes(const DenseConfig& config, const MicroStep& of) {
  int64_t scores = 0;
  for (const DenseLayer& layer : config.each_layer) {
    if (!is_chunked(config, layer, of.time)) continue;
    const int64_t chunk = ops::attention_chunk(of.batch, config.heads, of.time, layer.window);
    const int64_t reach = ops::attention_reach(chunk, of.time, layer.window);
    scores = std::max(scores, of.batch * config.heads * chunk * reach);
  }
  const size_t in_dtype = of.dtype == DType::f32 ? 0 : 2 * nbytes_of(of.dtype);
  return static_cast<size_t>(scores) * (config.attention_softcap > 0 ? 3 * 4 + in_dtype : 2 * 4 + in_dtype) +
         of.rows() * static_cast<size_t>(2 * config.kv_width()) * 4;
}

// Whether some layer takes the library's attention.
bool attends_whole(const DenseConfig& config, const MicroStep& of) {
  return std::any_of(config.each_layer.begin(), config.each_layer.end(),
                     [&](const DenseLayer& layer) { return !is_chunked(config, layer, of.time); });
}

// Where the processor has no arithmetic for the dtype, attention's backward is in fp32 (aten/fp32_products.h): five
// tensors are widened, and three gradients rounded.
size_t widened_nbytes(const DenseConfig& config, const Widths& w, const MicroStep& of) {
  if (!attends_whole(config, of) || !w.narrow || kernels::why_no_arithmetic(of.dtype).empty()) return 0;
  return of.rows() * w.q * (8 * 4 + 3 * w.element);
}

// Attention's backward in deterministic mode; `given_back` elements of a token are not held by then.
size_t repeatable_in_flight(const DenseConfig& config, const Widths& w, const MicroStep& of, size_t given_back) {
  if (!of.deterministic || !of.is_fused() || !w.narrow) return 0;
  if (config.attention_dropout > 0 || !attends_whole(config, of)) return 0;
  return ops::backward_in_flight_nbytes({of.batch, config.heads, config.kv_heads, of.time, config.head_dim},
                                        config.hidden, static_cast<int64_t>(given_back));
}

// What a token's pairs keep: gate and up of each expert, where each pair stands, and the router's probabilities, in
// fp32. See [Note: how tokens reach their experts].
size_t routed_nbytes(const DenseExperts& experts, const Widths& w) {
  const auto k = static_cast<size_t>(experts.per_token), count = static_cast<size_t>(experts.count);
  const size_t weights = w.element + (experts.normalizes ? 4 : 0);
  return k * (2 * static_cast<size_t>(experts.ffn) * w.element + 4 * sizeof(int64_t) + weights) + count * 4 +
         (experts.normalizes ? 4 : 0);
}

// Its gate, and what it gives.
size_t shared_nbytes(const DenseExperts& experts, const Widths& w, const Reads& reads, bool fused) {
  if (experts.shared_ffn == 0) return 0;
  return ((fused ? 2 : reads.ffn_product ? 4 : 3) * static_cast<size_t>(experts.shared_ffn) + 2 + w.hidden) * w.element;
}

// Backward of a token's experts holds the gradients of what they gave, of gate and of up, and what the activation
// function makes of them; later the sorted tokens twice. The shared expert's own is over by then, but for the gradients
// of gate and up. On a GPU the gradients of the experts' matrices are made beside where they are kept; a processor
// without arithmetic for the dtype multiplies in fp32, at most all tokens at once.
size_t routed_in_flight(const DenseConfig& config, const Widths& w, const Reads& reads, const MicroStep& of) {
  const size_t rows = of.rows();
  const bool fused = of.is_fused();
  const DenseExperts& experts = config.experts;
  const auto k = static_cast<size_t>(experts.per_token), ffn = static_cast<size_t>(experts.ffn);
  const auto shared = static_cast<size_t>(experts.shared_ffn);
  const size_t early = k * (w.hidden + (fused ? 6 : 5) * ffn), late = k * (2 * w.hidden + 2 * ffn);
  const size_t given_back = shared == 0 ? 0 : w.hidden + (fused ? 0 : 2 * shared);
  const size_t held = std::max(early, late) + 3 * w.hidden;
  const size_t weights = fused && reads.trains_base ? static_cast<size_t>(experts.count) * 2 * ffn * w.hidden : 0;
  size_t nbytes = (rows * (held - std::min(held, given_back)) + weights) * w.element;
  if (!fused && w.narrow && !kernels::why_no_arithmetic(of.dtype).empty()) {
    const size_t less = early - std::min(early, k * (w.hidden + 4 * ffn));  // has been given back then
    const size_t widened = (rows * (w.hidden + ffn) + w.hidden * ffn) * 4;
    nbytes += widened - std::min(widened, rows * less * w.element);
  }
  return nbytes + rows * k * sizeof(int64_t);
}

// What adapters read and make, in a token.
size_t adapters_nbytes(const DenseAdapters& adapters, const Widths& w) {
  return static_cast<size_t>(adapters.ranks) * w.element + static_cast<size_t>(adapters.dropped) * (1 + w.element);
}

BlockNbytes mixture_nbytes(const DenseConfig& config, const MicroStep& of, const DenseAdapters& adapters) {
  const Widths w = widths_of(config, of);
  const size_t rows = of.rows();
  const bool fused = of.is_fused();
  const Reads reads(adapters);
  const size_t kept = norms_nbytes(config, w, reads, fused) + attention_nbytes(config, w, of, fused) +
                      routed_nbytes(config.experts, w) + shared_nbytes(config.experts, w, reads, fused) +
                      adapters_nbytes(adapters, w);
  const size_t norms = w.narrow && !fused ? 0 : reads.norms(w.before) * w.hidden;
  const size_t product = fused || !reads.ffn_product ? 0 : static_cast<size_t>(config.experts.shared_ffn);
  const size_t scores = w.chunked ? chunk_nbytes(config, of) : 0;
  const auto given_back =
      static_cast<size_t>(2 * (config.experts.per_token * config.experts.ffn + config.experts.shared_ffn));
  return {rows * kept, rows * (norms + product) * w.element,
          std::max({routed_in_flight(config, w, reads, of), scores, fused ? 0 : widened_nbytes(config, w, of),
                    repeatable_in_flight(config, w, of, given_back)})};
}

}  // namespace

BlockNbytes dense_block_nbytes(const DenseConfig& config, const MicroStep& of, const DenseBlockKind& block) {
  if (block.experts) return mixture_nbytes(config, of, block.adapters);
  const DenseAdapters& adapters = block.adapters;
  const Widths w = widths_of(config, of);
  const size_t rows = of.rows();
  const bool fused = of.is_fused();
  const Reads reads(adapters);
  const size_t ffn = ffn_widths(config, reads, fused);
  size_t kept =
      norms_nbytes(config, w, reads, fused) + attention_nbytes(config, w, of, fused) + ffn * w.ffn * w.element;
  kept += adapters_nbytes(adapters, w);
  if (config.residual_dropout > 0) kept += 2 * w.hidden;
  // Selective recompute makes norms' outputs again, and what the activation function gave.
  const bool makes_product = config.gated || config.activation != Activation::relu;
  const bool kept_product = reads.ffn_product && (!fused || ffn != 2 || !config.gated);
  const size_t product = makes_product && kept_product ? w.ffn : 0;
  const size_t scores = w.chunked ? chunk_nbytes(config, of) : 0;
  if (!fused) {
    // Gradients flow alike whether the base is trained or not.
    const size_t flowing = adapters.frozen_base ? dense_block_nbytes(config, of).kept : rows * kept;
    // An RMS norm in 16 bits does not keep its input, so that the input is kept where its output is made again.
    const size_t norms = w.narrow && config.norm != NormKind::layer ? 0 : reads.norms(w.before) * w.hidden;
    return {rows * kept, rows * (norms + product) * w.element,
            std::max({flowing / 2, scores, widened_nbytes(config, w, of)})};
  }
  // Backward of the feed-forward part holds the gradients of its product, of gate and of up.
  const size_t norms = config.norm == NormKind::rms_one && w.narrow ? 0 : reads.norms(w.before) * w.hidden;
  const size_t in_flight = ((config.gated ? 3 : 2) * w.ffn + 2 * w.hidden) * w.element;
  const size_t attention = std::max(scores, repeatable_in_flight(config, w, of, ffn * w.ffn));
  if (!of.fp8) return {rows * kept, rows * (norms + product) * w.element, std::max(rows * in_flight, attention)};
  // Inputs of matrices are kept in 8 bits: norms' outputs instead of in the dtype, and beside what attention and the
  // product keep of theirs. Backward has the product once more in the dtype, and a gradient both ways round.
  const size_t read = 2 * w.hidden;
  // What adapters read they keep in the dtype all the same.
  const size_t in_dtype = reads.trains_base ? read + product : 0;
  const size_t in_fp8 = kept - in_dtype * w.element + read + w.q + w.ffn;
  const size_t of_adapters = reads.trains_base ? 0 : (norms + product) * w.element;
  return {rows * in_fp8, rows * (w.before * w.hidden + (makes_product ? w.ffn : 0) + of_adapters),
          std::max(rows * (in_flight + w.ffn * w.element + 2 * w.ffn), attention)};
}

}  // namespace shoal::models
