// DeepSpeed's JSON as a typed tree, plus Shoal's own section. Start with Config::from_file or Config::from_text.
// A Config is checked and resolved: "auto" values are filled in, the batch triple is complete for the world size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/dtype.h"
#include "shoal/optimizer.h"
#include "shoal/transport.h"

namespace shoal {

enum class Precision : uint8_t { fp32, bf16, fp16 };
// "fp32", "bf16", "fp16".
std::string_view name_of(Precision precision);

struct BatchConfig {
  int64_t train_batch_size = 1;
  int64_t micro_batch_size = 1;  // train_micro_batch_size_per_gpu
  int64_t accumulation_steps = 1;
  // false: the caller decides when a step ends, and nothing divides by the number of micro-steps.
  bool managed_gradient_accumulation = true;

  bool operator==(const BatchConfig&) const = default;
};

struct Fp16Config {
  bool enabled = false;
  double loss_scale = 0;  // 0: dynamic
  int initial_scale_power = 16;
  int loss_scale_window = 1000;
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool master_weights_and_grads = false;  // fp16_master_weights_and_grads: weights are their own masters

  bool operator==(const Fp16Config&) const = default;
};

// Where a state lives: on the device that computes, in host memory, or on disk.
enum class Tier : uint8_t { device, host, disk };
// "device", "host", "disk".
std::string_view name_of(Tier tier);

// zero_optimization.offload_optimizer and offload_param.
struct OffloadConfig {
  Tier tier = Tier::device;
  std::string nvme_path = {};          // of the disk tier
  int buffer_count = 4;                // chunks of states, or units of weights, on their way to or from the disk
  double ratio = 1;                    // the share that is offloaded
  int64_t max_in_cpu = 1'000'000'000;  // elements that stay in host memory all the same; weights of the disk tier only

  Tier tier_in_use() const { return ratio > 0 ? tier : Tier::device; }
  bool operator==(const OffloadConfig&) const = default;
};

// How the disk is read and written.
struct AioConfig {
  int64_t block_size = 1 << 20;  // bytes
  int queue_depth = 8;
  int threads = 1;  // intra_op_parallelism

  bool operator==(const AioConfig&) const = default;
};

struct ZeroConfig {
  int stage = 0;
  bool overlap_comm = true;
  int64_t reduce_bucket_size = 500'000'000;         // elements
  int64_t prefetch_bucket_size = 50'000'000;        // elements; 0: no prefetch
  int64_t param_persistence_threshold = 100'000;    // elements
  int64_t model_persistence_threshold = INT64_MAX;  // elements in all
  int64_t max_live_parameters = 1'000'000'000;      // elements
  OffloadConfig offload_optimizer = {};
  OffloadConfig offload_param = {.buffer_count = 5};  // stage 3
  int mics_shard_size = -1;                           // ranks that hold one copy of the model; below 1: all of them
  bool mics_hierarchical_gather = false;              // mics_hierarchical_params_gather
  int hpz_partition_size = 1;                         // ranks that hold a second copy of the weights; below 2: none
  bool quantized_weights = false;                     // zero_quantized_weights: gathers travel as int8
  bool quantized_frozen_weights = false;              // zero_quantized_nontrainable_weights
  bool quantized_gradients = false;                   // zero_quantized_gradients: sums travel between hosts in few bits
  double error_feedback = -1;                         // zeropp_loco_param.err_beta; below 0: none
  int64_t error_reset_steps = 1024;                   // zeropp_loco_param.reset_T

  bool operator==(const ZeroConfig&) const = default;
};

enum class SchedulerKind : uint8_t {
  none,
  warmup,
  warmup_decay,
  warmup_cosine,
  one_cycle,
  lr_range_test,
  warmup_stable_decay,  // these two by the formulas of transformers
  warmup_cosine_restarts,
};

// How the decay of warmup_stable_decay falls.
enum class DecayCurve : uint8_t { cosine, linear, one_minus_sqrt };

// The parameters of the learning-rate schedule as given, by DeepSpeed's names, with its defaults filled in.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::none;
  std::map<std::string, double> params = {};  // booleans as 0 or 1; absent optional values are absent
  bool log_warmup = true;                     // warmup_type "log" (true) or "linear"
  DecayCurve decay_curve = DecayCurve::cosine;

  bool operator==(const SchedulerConfig&) const = default;
};

enum class Fp8Recipe : uint8_t { tensorwise, rowwise };

// 8-bit matmuls in the blocks of the native models.
struct Fp8Config {
  bool enabled = false;
  Fp8Recipe recipe = Fp8Recipe::tensorwise;

  bool operator==(const Fp8Config&) const = default;
};

// Who updates weights whose optimizer states are in host memory, on a rank with a GPU.
enum class OffloadUpdate : uint8_t {
  automatic,  // the GPU, and the host a share of what the GPU's ring of states cannot bring in time
  device,     // the GPU: states come to it and go back
  host,       // the host: gradients come to it and weights go back
};

// Whether gradients of what the host updates for a GPU wait for it in host memory, and leave the GPU as they are made.
enum class OffloadGradients : uint8_t {
  automatic,  // where states are in host memory and the host updates all of them
  on,         // of every flat that the host alone updates
  off,
};

// Whether step() leaves units to be updated when they are needed next.
enum class DeferUpdate : uint8_t {
  automatic,  // in `shoal train`
  on,
  off,
};

inline constexpr int kShardByHost = -1;  // ShoalConfig::shard_size "host"

struct ShoalConfig {
  bool reproducible = false;
  int shard_size = 0;               // as mics_shard_size; 0: not said; kShardByHost: the ranks of one host
  int ranks_per_host = 0;           // what the world knows of its hosts; 0: one host has all
  int quantized_gradient_bits = 4;  // with zero_quantized_gradients: 4 or 8
  int64_t fold_group =
      0;  // leaves (micro-batches) whose gradients are added up by themselves first; 0: all are one group
  Transport transport = Transport::automatic;
  double timeout_seconds = 600;
  bool tf32 = false;                              // fp32 matrix products of the native trainer, on a GPU
  int64_t offload_chunk_size = int64_t{1} << 22;  // elements whose states move together
  bool verify_offload = true;                     // a checksum of every page that comes back from disk
  OffloadUpdate offload_update = OffloadUpdate::automatic;
  bool auto_placement = false;  // placement "auto": tiers by the memory there is
  int64_t device_budget =
      0;  // bytes of its GPU that a rank may take; 0: what is free, which Engine is not told of: give one
  int64_t host_budget = 0;        // bytes of a host that its ranks may take for states and weights; 0: what is free
  int64_t offload_ring_size = 0;  // bytes of the GPU through which states of the host pass; 0: see docs/offload.md
  double offload_disk_ratio = 1;  // the share of states that the disk tier takes at most; the host has the rest
  OffloadGradients offload_gradients = OffloadGradients::automatic;
  DeferUpdate defer_update = DeferUpdate::automatic;
  bool speculative_update = false;  // the host updates before the step is decided, beside what there is
  bool scale_loss = false;          // by the rules of fp16, whatever the dtype of the weights
  Reduce reduce = Reduce::exact;    // who adds gradients that NCCL carries
  int64_t save_memory = 0;          // bytes of a rank's picture of what it saves behind training; 0: what it needs
  int64_t max_nonfinite = 20;       // steps in a row without finite loss or gradients that end a run; 0: none do
  int64_t leaf_seed = -1;           // of random numbers by (leaf_seed, step, leaf); -1: as the generators stand

  bool operator==(const ShoalConfig&) const = default;
};

// Where the numbers of a run go beside its own files: sections tensorboard and csv_monitor. Files lie in
// <output_path>/<job_name>.
struct FolderMonitor {
  bool enabled = false;
  std::string output_path = {};
  std::string job_name = "DeepSpeedJobName";

  bool operator==(const FolderMonitor&) const = default;
};

// The section wandb, which the Python package of that name carries out.
struct WandbMonitor {
  bool enabled = false;
  std::string group = {};
  std::string team = {};
  std::string project = "deepspeed";

  bool operator==(const WandbMonitor&) const = default;
};

struct MonitorConfig {
  FolderMonitor tensorboard;
  FolderMonitor csv;
  WandbMonitor wandb;

  bool operator==(const MonitorConfig&) const = default;
};

// What a config file leaves open and somebody else knows.
struct ConfigContext {
  int world_size = 1;
  std::optional<int64_t> hidden_size = {};       // for "auto" bucket sizes
  std::optional<int64_t> micro_batch_size = {};  // for "auto" batch keys
  std::optional<int64_t> accumulation_steps = {};
  std::optional<double> lr = {};  // for "auto" learning-rate keys
  std::optional<double> weight_decay = {};
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
  std::optional<double> gradient_clipping = {};
  std::optional<Precision> precision = {};  // for "auto" in fp16.enabled and bf16.enabled
  std::optional<int64_t> total_steps = {};
  std::optional<int64_t> warmup_steps = {};
  std::optional<int> data_ranks = {};  // ranks that take samples of their own; not said: all of them
  int ranks_per_host = 0;              // 0: one host has all of them
};

struct Config {
  BatchConfig batch;
  double gradient_clipping = 1.0;  // 0: off
  Precision precision = Precision::fp32;
  bool check_grad_overflow =
      true;                   // bf16.check_grad_overflow; false: in bf16 a step is taken whatever its gradients are
  bool bf16_masters = false;  // bf16.bf16_master_weights_and_grads: weights are their own masters
  bool bf16_optimizer_states = false;  // moments are bf16
  Fp16Config fp16;
  Fp8Config fp8;
  bool inputs_on_host = false;                    // activation_checkpointing.cpu_checkpointing
  std::optional<DType> grad_accum_dtype = {};     // data_types.grad_accum_dtype
  std::optional<DType> communication_dtype = {};  // communication_data_type
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  bool gradient_sum = false;  // gradient_allreduce_op "sum"
  ZeroConfig zero;
  AioConfig aio;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  int64_t steps_per_print = 0;  // 0: never
  bool wall_clock_breakdown = false;
  MonitorConfig monitor;
  ShoalConfig shoal;

  // One line for each key that was accepted and has no effect here, with the reason. The engine prints them on rank 0.
  std::vector<std::string> notices = {};

  // Both throw one shoal::Error that lists every mistake in the text.
  // `overrides` are "path=value" texts laid over the file before it is checked: "zero_optimization.stage=3".
  // SHOAL_REPRODUCIBLE=1 in the environment switches shoal.reproducible on.
  static Config from_file(const std::string& path, const ConfigContext& context = {},
                          const std::vector<std::string>& overrides = {});
  static Config from_text(std::string_view text, const ConfigContext& context = {}, std::string_view origin = "config",
                          const std::vector<std::string>& overrides = {});

  // The effective config: every key that is carried out, with its value, as JSON that from_text accepts.
  std::string to_json() const;

  bool operator==(const Config&) const = default;
};

}  // namespace shoal
