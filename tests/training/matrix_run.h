// Trains the matrix model on one rank of a group and returns everything that must agree to the bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/matrix_model.h"

namespace shoal::testing {

struct RunOptions {
  int stage = 0;
  Precision precision = Precision::fp32;
  int64_t accumulation = 1;
  int leaves = 0;  // of a step, instead of the accumulation: data and random numbers follow the leaf, not the rank
  int64_t fold_group = 0;
  int evaluate_every = 0;  // steps; 0: never
  bool clip = true;        // at a norm that every step exceeds
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
  double momentum = 0;
  bool bf16_states = false;     // moments in bf16
  bool narrow_masters = false;  // of the precision's 16 bits
  double lr = 3e-3;
  bool one_group = false;  // every parameter with the config's learning rate and weight decay
  at::Device device = at::kCPU;
  OffloadConfig offload = {};
  Tier weights_tier = Tier::device;
  double weights_ratio = 1;       // of the tiers below the device
  std::string weights_path = {};  // of the disk tier
  int weight_buffers = 2;         // of the disk tier
  int64_t weights_in_host = 0;    // elements, of the disk tier
  int64_t offload_chunk = 64;
  bool verify_offload = true;
  OffloadUpdate offload_update = OffloadUpdate::automatic;
  OffloadGradients offload_gradients = OffloadGradients::automatic;
  double offload_disk_ratio = 1;
  bool speculative = false;  // the host updates before the step is decided, and is given time for it
  double clip_norm = 0.05;   // what clipping clips to
  bool defer = false;        // updates wait until a unit is needed
  int64_t offload_ring = 0;
  int shard_size = -1;              // mics_shard_size
  int second_copy = 1;              // zero_hpz_partition_size
  bool hierarchical = false;        // mics_hierarchical_params_gather
  std::vector<int> hosts = {};      // of the ranks as threads
  bool quantized_weights = false;   // zero_quantized_weights
  int quantized_gradient_bits = 0;  // with zero_quantized_gradients; 0: without
  double error_feedback = -1;       // zeropp_loco_param.err_beta
  int64_t reduce_bucket = 700;      // elements: where gradients are received or staged, in several pieces
};

struct RunResult {
  std::vector<double> losses;  // of this rank, every micro-step
  std::vector<double> norms;
  std::vector<bool> applied;
  std::string weights;  // bytes of all parameters at the end
  MemoryReport memory;
  int64_t host_updated_numel = 0;
  int64_t ahead_numel = 0, taken_ahead_numel = 0;
  std::string overflow_unit;
  bool operator==(const RunResult& other) const;
  static std::string bits(const std::vector<double>& values);
  uint64_t hash() const;
};

Config config_of(const RunOptions& options, int world);

RunResult train(Group& world, const RunOptions& options);

// libtorch finds the code of some functions at their first use, and threads that come to it together may not all find
// the same: in 2 of 300 processes the first tanh of two threads differed from every later one. So one thread comes
// first.
void find_math();

// Plays every rank as a thread; a rank that throws aborts the others, and the first error is thrown here.
template <class Result>
std::vector<Result> on_threads(int world, const std::function<Result(Group&)>& play,
                               Timeout timeout = std::chrono::seconds(60), const std::vector<int>& hosts = {}) {
  find_math();
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(world, timeout, hosts);
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

std::vector<RunResult> train_on_threads(int world, const RunOptions& options);

}  // namespace shoal::testing
