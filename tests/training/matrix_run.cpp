// See matrix_run.h.
#include "training/matrix_run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/text.h"

namespace shoal::testing {

bool RunResult::operator==(const RunResult& other) const {
  return bits(losses) == bits(other.losses) && bits(norms) == bits(other.norms) && applied == other.applied &&
         weights == other.weights;
}

std::string RunResult::bits(const std::vector<double>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
}

uint64_t RunResult::hash() const { return hash_text(weights, hash_text(bits(losses), hash_text(bits(norms)))); }

Config config_of(const RunOptions& options, int world) {
  Config config;
  const int64_t accumulation = options.leaves > 0 ? options.leaves / world : options.accumulation;
  config.batch = {2 * accumulation * world, 2, accumulation};
  if (options.leaves > 0) config.shoal.leaf_seed = 9;
  config.shoal.fold_group = options.fold_group;
  config.gradient_clipping = options.clip ? options.clip_norm : 0.0;
  config.precision = options.precision;
  config.fp16.enabled = options.precision == Precision::fp16;
  config.fp16.initial_scale_power = 8;
  config.fp16.hysteresis = 1;
  config.zero.stage = options.stage;
  config.zero.overlap_comm = options.overlap;
  config.zero.mics_shard_size = options.shard_size;
  config.zero.hpz_partition_size = options.second_copy;
  config.zero.mics_hierarchical_gather = options.hierarchical;
  config.zero.quantized_weights = options.quantized_weights;
  config.zero.quantized_gradients = options.quantized_gradient_bits > 0;
  if (options.quantized_gradient_bits > 0) config.shoal.quantized_gradient_bits = options.quantized_gradient_bits;
  config.zero.error_feedback = options.error_feedback;
  config.zero.error_reset_steps = 5;
  config.zero.reduce_bucket_size = options.reduce_bucket;
  config.zero.prefetch_bucket_size = options.prefetch;
  config.zero.param_persistence_threshold = options.persistence_threshold;
  config.zero.offload_param = {.tier = options.weights_tier,
                               .nvme_path = options.weights_path,
                               .buffer_count = options.weight_buffers,
                               .ratio = options.weights_ratio,
                               .max_in_cpu = options.weights_in_host};
  config.zero.offload_optimizer = options.offload;
  config.aio.block_size = 4096;
  config.inputs_on_host = options.inputs_on_host;
  config.shoal.offload_chunk_size = options.offload_chunk;
  config.shoal.verify_offload = options.verify_offload;
  config.shoal.offload_update = options.offload_update;
  config.shoal.offload_gradients = options.offload_gradients;
  config.shoal.offload_ring_size = options.offload_ring;
  config.shoal.defer_update = options.defer ? DeferUpdate::on : DeferUpdate::off;
  config.shoal.offload_disk_ratio = options.offload_disk_ratio;
  config.shoal.speculative_update = options.speculative;
  config.shoal.reproducible = options.reproducible;
  config.optimizer.kind = options.optimizer;
  config.optimizer.lr = options.lr;
  config.optimizer.momentum = options.momentum;
  config.bf16_optimizer_states = options.bf16_states;
  config.bf16_masters = options.narrow_masters && options.precision == Precision::bf16;
  config.fp16.master_weights_and_grads = options.narrow_masters && options.precision == Precision::fp16;
  config.optimizer.weight_decay = 0.01;
  return config;
}

RunResult train(Group& world, const RunOptions& options) {
  at::set_num_threads(1);
  const int rank = options.data_rank >= 0 ? options.data_rank : world.rank();
  MatrixModel model;
  EngineOptions engine_options;
  engine_options.groups = {{}, {.lr = 1e-3, .weight_decay = 0.0}};
  if (options.one_group) engine_options.groups[1] = {};
  engine_options.seed = 5;
  engine_options.device = options.device;
  Engine engine(model.units(), config_of(options, world.size()), world, engine_options);
  RunResult result;
  for (int step = 0; step < options.steps; ++step) {
    StepResult stepped;
    for (int64_t micro = 0; micro < engine.config().batch.accumulation_steps; ++micro) {
      const bool by_leaf = options.leaves > 0;
      const int64_t leaf = micro * world.size() + rank;
      const bool uses = !options.skip_units || (step + (by_leaf ? leaf : rank + micro)) % 3 != 0;
      const Batch batch = by_leaf ? batch_of(step, leaf, 0) : batch_of(step, micro, rank);
      at::Tensor loss = forward(engine, model, batch, {options.dropout, options.recompute, uses});
      if (step == options.overflow_step) loss = loss * INFINITY;
      result.losses.push_back(loss.item<double>());
      engine.backward(loss);
      if (options.speculative && step % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stepped = engine.step();
    }
    if (options.evaluate_every > 0 && step % options.evaluate_every == 0) {
      engine.evaluate([&] { forward(engine, model, batch_of(step, 0, 99), {options.dropout, false, true}); });
    }
    result.norms.push_back(stepped.grad_norm);
    result.applied.push_back(stepped.applied);
    if (!stepped.applied) result.overflow_unit = stepped.overflow_unit;
  }
  engine.with_gathered(MatrixModel::names(), Access::read, [&] {
    for (const at::Tensor& tensor : model.tensors()) {
      const at::Tensor there = tensor.detach().to(at::kCPU);
      result.weights.append(static_cast<const char*>(there.const_data_ptr()), there.nbytes());
    }
  });
  result.memory = engine.meters().memory();
  const HostTraffic host = engine.meters().host();
  result.host_updated_numel = host.host_updated_numel;
  result.ahead_numel = host.ahead_numel;
  result.taken_ahead_numel = host.taken_ahead_numel;
  return result;
}

void find_math() {
  static const bool found = [] {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::linspace(-2, 2, 64).view({8, 8}).to(dtype);
      for (const at::Tensor& y : {at::tanh(at::linear(x, x)), at::exp(x), at::erf(x), at::gelu(x), at::silu(x),
                                  at::log_softmax(x, 1), at::rsqrt(x), at::sin(x), at::cos(x)}) {
        y.sum();
      }
    }
    return true;
  }();
  (void)found;
}

std::vector<RunResult> train_on_threads(int world, const RunOptions& options) {
  return on_threads<RunResult>(
      world, [&](Group& group) { return train(group, options); }, std::chrono::seconds(60), options.hosts);
}

}  // namespace shoal::testing
