// See decoder.h.
#include "models/decoder.h"

#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/host_inputs.h"
#include "models/ops/linear_cross_entropy.h"
#include "shoal/error.h"

namespace shoal::models {

static ops::Matmul matmul_of(const Fp8Config& fp8) {
  if (!fp8.enabled) return ops::Matmul::plain;
  return fp8.recipe == Fp8Recipe::rowwise ? ops::Matmul::fp8_rowwise : ops::Matmul::fp8_tensorwise;
}

Decoder::Decoder(ModelInfo info, std::vector<Unit> units, Recompute recompute)
    : info_(std::move(info)), units_(std::move(units)), recompute_(recompute) {}

at::Tensor Decoder::run_blocks(Engine& engine, const at::Tensor& tokens) const {
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
  Pass pass;
  pass.randomness = {!engine.evaluating(), engine.generator()};
  pass.matmul = matmul_of(engine.config().fp8);
  pass.remakes = recompute_ == Recompute::selective;
  if (pass.matmul != ops::Matmul::plain) ops::check_fp8(tokens);
  at::Tensor x = engine.run(0, tokens, [&](const at::Tensor& t) { return embed(pass, t); });
  add_positions(pass, x);
  for (size_t layer = 0; layer + 2 < units_.size(); ++layer) {
    // A recomputed block runs again in backward, when this function has returned: it holds the pass itself.
    const auto run = [this, pass, layer, &engine](const at::Tensor& input) {
      return engine.run(static_cast<int>(layer) + 1, input, [&](const at::Tensor& t) { return block(pass, layer, t); });
    };
    x = recompute_ == Recompute::full ? engine.recompute(x, run) : run(x);
  }
  return x;
}

at::Tensor Decoder::loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets) const {
  if (targets.sizes() != tokens.sizes()) {
    throw Error(fmt::format("model {}", info_.name),
                fmt::format("the targets are of shape [{}], the tokens of shape [{}]. Pass one target a token.",
                            fmt::join(targets.sizes(), ", "), fmt::join(tokens.sizes(), ", ")));
  }
  const at::Tensor x = run_blocks(engine, tokens);
  return engine.run(head_unit(), x, [&](const at::Tensor& t) {
    return ops::linear_cross_entropy(last_norm(t), head_weight(), targets);
  });
}

at::Tensor Decoder::logits(Engine& engine, const at::Tensor& tokens) const {
  const at::Tensor x = run_blocks(engine, tokens);
  return engine.run(head_unit(), x,
                    [&](const at::Tensor& t) { return at::linear(last_norm(t), head_weight()).to(at::kFloat); });
}

ActivationNbytes Decoder::activation_nbytes(const MicroStep& of) const {
  const int64_t tokens = of.batch * of.time;
  const auto rows = static_cast<size_t>(tokens);
  const auto layers = static_cast<size_t>(info_.layers);
  const bool fused = of.device == at::DeviceType::CUDA;
  const size_t x = rows * static_cast<size_t>(info_.hidden) * nbytes_of(of.dtype);
  // The head: its input and the normed input; on the CPU logits, in fp32 and in the dtype, their log-softmax and its
  // gradient.
  const size_t vocab = rows * static_cast<size_t>(info_.vocab);
  const size_t logits = vocab * (of.dtype == DType::f32 ? 3 * 4 : 3 * 4 + nbytes_of(of.dtype));
  const size_t head =
      2 * x + (fused ? ops::linear_cross_entropy_nbytes(tokens, info_.vocab, info_.hidden, of.dtype) : logits);
  const BlockNbytes block = block_nbytes(of.batch, of.time, of.dtype, fused);
  // While the head runs, every block's activations wait. With full recompute only the inputs do, most of them on the
  // host where they may go there, and then one block at a time is whole again.
  if (recompute_ == Recompute::full) {
    const bool on_host = of.inputs_on_host && fused;
    const size_t inputs = on_host ? std::min(layers, HostInputs::kOnDevice) : layers;
    return {inputs * x + std::max(block.kept + block.in_flight, head), on_host ? layers * x : 0};
  }
  // What selective recompute makes again is there once, beside the gradients.
  const size_t remade = recompute_ == Recompute::selective ? block.remade : 0;
  return {layers * (block.kept - remade) + std::max(block.in_flight + remade, head), 0};
}

}  // namespace shoal::models
