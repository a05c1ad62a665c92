// See decoder.h.
#include "models/decoder.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
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

Decoder::Blocks Decoder::run_blocks(Engine& engine, const at::Tensor& tokens,
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
  const bool mixture = !info_.experts.layers.empty();
  if (pass.matmul != ops::Matmul::plain) {
    if (mixture) {
      throw Error("config fp8.enabled", "true, and experts are not multiplied in fp8 here. Switch fp8 off.");
    }
    ops::check_fp8(tokens);
  }
  Blocks blocks;
  blocks.x = engine.run(0, tokens, [&](const at::Tensor& t) { return embed(pass, t); });
  add_positions(pass, blocks.x);
  if (mixture) {
    blocks.routed = pass.routed = std::make_shared<RoutedTokens>();
    blocks.routed->of_layer.resize(static_cast<size_t>(info_.layers));
    if (info_.experts.balance > 0 && !engine.evaluating()) {
      blocks.probabilities = at::zeros({info_.experts.count}, blocks.x.options().dtype(at::kFloat));
    }
  }
  if (pass.documents != nullptr) {
    for (ops::RotaryTable* table : {&pass.rotary, &pass.local_rotary}) {
      if (table->cos.defined()) *table = ops::at_positions(*table, pass.documents->positions);
    }
  }
  for (pass.layer = 0; pass.layer + 2 < units_.size(); ++pass.layer) run_block(engine, pass, blocks);
  return blocks;
}

void Decoder::run_block(Engine& engine, const Pass& shared, Blocks& blocks) const {
  const auto full = static_cast<size_t>(recomputed_.full), selective = static_cast<size_t>(recomputed_.selective);
  Pass pass = shared;
  pass.remakes = pass.layer >= full && pass.layer < full + selective;
  // A recomputed block runs again in backward, when this function has returned: it holds the pass itself.
  const auto run = [this, pass, &engine](const Engine::Tensors& inputs) {
    return engine.run(static_cast<int>(pass.layer) + 1, inputs, [&](const Engine::Tensors& t) {
      if (t.size() == 1) return Engine::Tensors{block(pass, pass.layer, t[0])};
      Pass own = pass;
      at::Tensor probabilities = t[1];
      own.probabilities = &probabilities;
      const at::Tensor x = block(own, own.layer, t[0]);
      return Engine::Tensors{x, probabilities};
    });
  };
  const std::vector<int64_t>& routing = info_.experts.layers;
  const bool adds = blocks.probabilities.defined() &&
                    std::binary_search(routing.begin(), routing.end(), static_cast<int64_t>(pass.layer));
  Engine::Tensors inputs = {blocks.x};
  if (adds) inputs.push_back(blocks.probabilities);
  const Engine::Tensors outputs = pass.layer < full ? engine.recompute(inputs, run) : run(inputs);
  blocks.x = outputs[0];
  if (adds) blocks.probabilities = outputs[1];
}

// As transformers has it: experts times the sum over experts of the share of tokens that went there, counted k times
// over, and the mean probability of going there; shares and means over the tokens of all layers together.
at::Tensor Decoder::balance_loss(const Blocks& blocks, int64_t tokens) const {
  at::Tensor counts;
  for (const at::Tensor& of : blocks.routed->of_layer) {
    if (of.defined()) counts = counts.defined() ? counts.add(of) : of;
  }
  const auto rows = static_cast<double>(tokens) * static_cast<double>(info_.experts.layers.size());
  return counts.to(at::kFloat).div(rows).mul(blocks.probabilities.div(rows)).sum().mul(info_.experts.count);
}

at::Tensor Decoder::loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets,
                         std::shared_ptr<const Documents> documents, ForwardReport* report) const {
  if (targets.sizes() != tokens.sizes()) {
    throw Error(fmt::format("model {}", info_.name),
                fmt::format("the targets are of shape [{}], the tokens of shape [{}]. Pass one target a token.",
                            fmt::join(targets.sizes(), ", "), fmt::join(tokens.sizes(), ", ")));
  }
  const Blocks blocks = run_blocks(engine, tokens, std::move(documents));
  const at::Tensor loss = engine.run(head_unit(), blocks.x, [&](const at::Tensor& t) {
    return ops::linear_cross_entropy(last_norm(t), head_weight(), targets, logits_softcap());
  });
  if (report != nullptr && blocks.routed != nullptr) {
    Engine::Tensors counts;
    for (const at::Tensor& of : blocks.routed->of_layer) {
      if (of.defined()) counts.push_back(of);
    }
    report->expert_tokens = at::stack(counts);
  }
  if (!blocks.probabilities.defined()) return loss;
  const at::Tensor balance = balance_loss(blocks, tokens.numel());
  if (report != nullptr) report->balance_loss = balance.detach();
  return loss.add(balance, info_.experts.balance);
}

at::Tensor Decoder::logits(Engine& engine, const at::Tensor& tokens) const {
  const Blocks blocks = run_blocks(engine, tokens, nullptr);
  return engine.run(head_unit(), blocks.x, [&](const at::Tensor& t) {
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
  const auto layers = static_cast<size_t>(info_.layers), full = static_cast<size_t>(recomputed.full),
             selective = static_cast<size_t>(recomputed.selective);
  const bool on_host = of.inputs_on_host && fused;
  // What waits for backward, from the first block on: inputs, most of them on the host where they may go there; what
  // selective recompute leaves; everything. The head runs while all of it waits, then one block after the other, the
  // last first, with what it makes again.
  const size_t staying = on_host && info_.lora && full > 0 ? 1 : 0;  // a frozen embedding's output needs no gradient
  size_t waiting = 0, peak = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    const BlockNbytes block = block_nbytes(of, layer);
    const bool is_full = layer < full, is_selective = !is_full && layer < full + selective;
    const size_t before = waiting;
    if (is_full) {
      waiting += on_host && layer >= staying + HostInputs::kOnDevice ? 0 : x;
    } else {
      waiting += block.kept - (is_selective ? block.remade : 0);
    }
    peak = std::max(peak, (is_full ? waiting : before) + block.kept + block.in_flight);
  }
  peak = std::max(peak, waiting + head);
  return {peak, on_host ? (full - staying) * x : 0};
}

}  // namespace shoal::models
