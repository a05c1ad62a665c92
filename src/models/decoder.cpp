// See decoder.h.
#include "models/decoder.h"

#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "engine/host_inputs.h"
#include "models/ops/linear_cross_entropy.h"
#include "shoal/error.h"

namespace shoal::models {

static ops::Matmul matmul_of(const Fp8Config& fp8) {
  if (!fp8.enabled) return ops::Matmul::plain;
  return fp8.recipe == Fp8Recipe::rowwise ? ops::Matmul::fp8_rowwise : ops::Matmul::fp8_tensorwise;
}

Decoder::Decoder(DecoderParts parts)
    : info_(std::move(parts.info)),
      units_(std::move(parts.units)),
      config_json_(std::move(parts.config_json)),
      recomputed_(blocks_of(parts.recompute, info_.layers)) {}

void Decoder::set_recomputed(const RecomputedBlocks& blocks) {
  SHOAL_CHECK(blocks.are_of(info_.layers), "{} and {} of {} blocks", blocks.full, blocks.selective, info_.layers);
  recomputed_ = blocks;
}

at::Tensor Decoder::run_blocks(Engine& engine, const at::Tensor& tokens,
                               std::shared_ptr<const Documents> documents) const {
  if (tokens.dim() != 2 || tokens.numel() == 0 || tokens.scalar_type() != at::kLong) {
    throw Error(fmt::format("model {}", info_.name),
                fmt::format("the tokens are {} of shape [{}]. Pass int64 of shape [batch, time].",
                            c10::toString(tokens.scalar_type()), fmt::join(tokens.sizes(), ", ")));
  }
  if (tokens.size(1) > info_.max_positions) {
    throw Error(fmt::format("model {}", info_.name),
                fmt::format("a sequence of {} tokens is longer than the model's {}. Cut it.", tokens.size(1),
                            info_.max_positions));
  }
  SHOAL_CHECK(documents == nullptr || documents->positions.sizes() == tokens.sizes());
  Pass pass;
  pass.documents = std::move(documents);
  pass.randomness = {!engine.evaluating(), engine.generator()};
  pass.matmul = matmul_of(engine.config().fp8);
  if (pass.matmul != ops::Matmul::plain) ops::check_fp8(tokens);
  at::Tensor x = engine.run(0, tokens, [&](const at::Tensor& t) { return embed(pass, t); });
  add_positions(pass, x);
  if (pass.documents != nullptr) {
    for (ops::RotaryTable* table : {&pass.rotary, &pass.local_rotary}) {
      if (table->cos.defined()) *table = ops::at_positions(*table, pass.documents->positions);
    }
  }
  const auto full = static_cast<size_t>(recomputed_.full), selective = static_cast<size_t>(recomputed_.selective);
  for (size_t layer = 0; layer + 2 < units_.size(); ++layer) {
    pass.remakes = layer >= full && layer < full + selective;
    // A recomputed block runs again in backward, when this function has returned: it holds the pass itself.
    const auto run = [this, pass, layer, &engine](const at::Tensor& input) {
      return engine.run(static_cast<int>(layer) + 1, input, [&](const at::Tensor& t) { return block(pass, layer, t); });
    };
    x = layer < full ? engine.recompute(x, run) : run(x);
  }
  return x;
}

at::Tensor Decoder::loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets,
                         std::shared_ptr<const Documents> documents) const {
  if (targets.sizes() != tokens.sizes()) {
    throw Error(fmt::format("model {}", info_.name),
                fmt::format("the targets are of shape [{}], the tokens of shape [{}]. Pass one target a token.",
                            fmt::join(targets.sizes(), ", "), fmt::join(tokens.sizes(), ", ")));
  }
  const at::Tensor x = run_blocks(engine, tokens, std::move(documents));
  return engine.run(head_unit(), x, [&](const at::Tensor& t) {
    return ops::linear_cross_entropy(last_norm(t), head_weight(), targets, logits_softcap());
  });
}

at::Tensor Decoder::logits(Engine& engine, const at::Tensor& tokens) const {
  const at::Tensor x = run_blocks(engine, tokens, nullptr);
  return engine.run(head_unit(), x, [&](const at::Tensor& t) {
    return ops::cap_logits(at::linear(last_norm(t), head_weight()), logits_softcap()).to(at::kFloat);
  });
}

ActivationNbytes Decoder::activation_nbytes(const MicroStep& of, const RecomputedBlocks& recomputed) const {
  SHOAL_CHECK(recomputed.are_of(info_.layers), "{} and {} of {} blocks", recomputed.full, recomputed.selective,
              info_.layers);
  const int64_t tokens = of.batch * of.time;
  const auto rows = static_cast<size_t>(tokens);
  const bool fused = of.is_fused();
  const size_t x = rows * static_cast<size_t>(info_.hidden) * nbytes_of(of.dtype);
  // The head: its input and the normed input; on the CPU logits, in fp32 and in the dtype, their log-softmax and its
  // gradient.
  const size_t vocab = rows * static_cast<size_t>(info_.vocab);
  const bool capped = logits_softcap() > 0;
  const size_t logits = vocab * (of.dtype == DType::f32 ? 3 * 4 : 3 * 4 + nbytes_of(of.dtype)) +
                        (capped ? 2 * vocab * nbytes_of(of.dtype) : 0);
  const size_t on_gpu =
      ops::linear_cross_entropy_nbytes(tokens, info_.vocab, info_.hidden, of.dtype, capped, !info_.lora);
  const size_t head = 2 * x + (fused ? on_gpu : logits);
  const BlockNbytes block = block_nbytes(of);
  const auto layers = static_cast<size_t>(info_.layers), full = static_cast<size_t>(recomputed.full),
             selective = static_cast<size_t>(recomputed.selective);
  const bool on_host = of.inputs_on_host && fused;
  // What waits for backward, from the first block on: inputs, most of them on the host where they may go there; what
  // selective recompute leaves; everything.
  const size_t staying = on_host && info_.lora && full > 0 ? 1 : 0;  // a frozen embedding's output needs no gradient
  const size_t inputs = (on_host ? staying + std::min(full - staying, HostInputs::kOnDevice) : full) * x;
  const size_t left = inputs + selective * (block.kept - block.remade);
  const size_t all = left + (layers - full - selective) * block.kept;
  // The head runs while all of it waits, then one block after the other, the last first, with what it makes again.
  size_t peak = all + head;
  if (full + selective < layers) peak = std::max(peak, all + block.in_flight);
  if (selective > 0) peak = std::max(peak, left + block.remade + block.in_flight);
  if (full > 0) peak = std::max(peak, inputs + block.kept + block.in_flight);
  return {peak, on_host ? (full - staying) * x : 0};
}

}  // namespace shoal::models
