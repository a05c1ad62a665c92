// Trains the matrix model on one rank of a group and returns everything that must agree to the bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "training/matrix_model.h"

namespace shoal::testing {

struct RunOptions {
  int stage = 0;
  Precision precision = Precision::fp32;
  int64_t accumulation = 1;
  bool clip = true;  // at a norm that every step exceeds
  bool overlap = true;
  bool recompute = false;
  bool inputs_on_host = false;  // of what is recomputed
  bool reproducible = true;
  double dropout = 0.25;
  int steps = 20;
  int overflow_step = 7;   // the loss of this step is infinite; -1: none
  bool skip_units = true;  // ranks skip the unit "sometimes" in some steps
  int data_rank = -1;      // whose data this rank trains on; -1: its own
  int64_t persistence_threshold = 100;
  int64_t prefetch = 1000;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double lr = 3e-3;
  bool one_group = false;  // every parameter with the config's learning rate and weight decay
  at::Device device = at::kCPU;
  OffloadConfig offload = {};
  Tier weights_tier = Tier::device;
  std::string weights_path = {};  // of the disk tier
  int weight_buffers = 2;         // of the disk tier
  int64_t weights_in_host = 0;    // elements, of the disk tier
  int64_t offload_chunk = 64;
  bool verify_offload = true;
  OffloadUpdate offload_update = OffloadUpdate::automatic;
  double offload_disk_ratio = 1;
  bool defer = false;  // updates wait until a unit is needed
  int64_t offload_ring = 0;
};

struct RunResult {
  std::vector<double> losses;  // of this rank, every micro-step
  std::vector<double> norms;
  std::vector<bool> applied;
  std::string weights;  // bytes of all parameters at the end
  MemoryReport memory;
  int64_t host_updated_numel = 0;
  std::string overflow_unit;
  bool operator==(const RunResult& other) const {
    return bits(losses) == bits(other.losses) && bits(norms) == bits(other.norms) && applied == other.applied &&
           weights == other.weights;
  }
  static std::string bits(const std::vector<double>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  }
  uint64_t hash() const { return hash_text(weights, hash_text(bits(losses), hash_text(bits(norms)))); }
};

inline Config config_of(const RunOptions& options, int world) {
  Config config;
  config.batch = {2 * options.accumulation * world, 2, options.accumulation};
  config.gradient_clipping = options.clip ? 0.05 : 0.0;
  config.precision = options.precision;
  config.fp16.enabled = options.precision == Precision::fp16;
  config.fp16.initial_scale_power = 8;
  config.fp16.hysteresis = 1;
  config.zero.stage = options.stage;
  config.zero.overlap_comm = options.overlap;
  config.zero.reduce_bucket_size = 700;
  config.zero.prefetch_bucket_size = options.prefetch;
  config.zero.param_persistence_threshold = options.persistence_threshold;
  config.zero.offload_param = {.tier = options.weights_tier,
                               .nvme_path = options.weights_path,
                               .buffer_count = options.weight_buffers,
                               .max_in_cpu = options.weights_in_host};
  config.zero.offload_optimizer = options.offload;
  config.aio.block_size = 4096;
  config.inputs_on_host = options.inputs_on_host;
  config.shoal.offload_chunk_size = options.offload_chunk;
  config.shoal.verify_offload = options.verify_offload;
  config.shoal.offload_update = options.offload_update;
  config.shoal.offload_ring_size = options.offload_ring;
  config.shoal.defer_update = options.defer ? DeferUpdate::on : DeferUpdate::off;
  config.shoal.offload_disk_ratio = options.offload_disk_ratio;
  config.shoal.reproducible = options.reproducible;
  config.optimizer.kind = options.optimizer;
  config.optimizer.lr = options.lr;
  config.optimizer.weight_decay = 0.01;
  return config;
}

inline RunResult train(Group& world, const RunOptions& options) {
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
    for (int64_t micro = 0; micro < options.accumulation; ++micro) {
      const bool uses = !options.skip_units || (step + rank + micro) % 3 != 0;
      at::Tensor loss = forward(engine, model, batch_of(step, micro, rank), {options.dropout, options.recompute, uses});
      if (step == options.overflow_step) loss = loss * INFINITY;
      result.losses.push_back(loss.item<double>());
      engine.backward(loss);
      stepped = engine.step();
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
  result.memory = engine.memory();
  result.host_updated_numel = engine.host().host_updated_numel;
  return result;
}

// libtorch finds the code of some functions at their first use, and threads that come to it together may not all find
// the same: in 2 of 300 processes the first tanh of two threads differed from every later one. So one thread comes
// first.
inline void find_math() {
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

// Plays every rank as a thread; a rank that throws aborts the others, and the first error is thrown here.
template <class Result>
std::vector<Result> on_threads(int world, const std::function<Result(Group&)>& play,
                               Timeout timeout = std::chrono::seconds(60)) {
  find_math();
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(world, timeout);
  std::vector<std::optional<Result>> played(static_cast<size_t>(world));  // not Result: bits of bool share their bytes
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      try {
        played[at] = play(*groups[at]);
      } catch (const std::exception& error) {
        errors[at] = std::current_exception();
        groups[at]->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  std::vector<Result> results;
  for (std::optional<Result>& result : played) results.push_back(std::move(*result));
  return results;
}

inline std::vector<RunResult> train_on_threads(int world, const RunOptions& options) {
  return on_threads<RunResult>(world, [&](Group& group) { return train(group, options); });
}

}  // namespace shoal::testing
