// Sections of DeepSpeed's config that Shoal does not have. Each is refused by name while it is switched on, and
// accepted with a notice while it is off, so that a config with everything spelled out still runs.
#include "config/sections.h"

namespace shoal::config {
namespace {

std::vector<Key> named(const std::vector<const char*>& names) {
  std::vector<Key> keys;
  for (const char* name : names) keys.push_back(anything(name));
  return keys;
}

Section foreign(std::string path, std::string meaning, const std::vector<const char*>& names) {
  Section section{.path = std::move(path), .meaning = std::move(meaning), .keys = named(names)};
  section.is_foreign = true;
  if (!names.empty()) section.off_switch = names.front();
  return section;
}

// Its keys are many and change with DeepSpeed's version; only the switch matters.
Section open_foreign(std::string path, std::string meaning, const std::vector<const char*>& names) {
  Section section = foreign(std::move(path), std::move(meaning), names);
  section.is_open = true;
  return section;
}

}  // namespace

std::vector<Section> foreign_sections() {
  std::vector<Section> all = {
      foreign("flops_profiler", "Counts of arithmetic by module.",
              {"enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed",
               "output_file"}),
      foreign("comms_logger", "A log of collectives.", {"enabled", "verbose", "prof_all", "debug", "prof_ops"}),
      foreign("tensorboard", "Metrics to TensorBoard.", {"enabled", "output_path", "job_name"}),
      foreign("csv_monitor", "Metrics to CSV files.", {"enabled", "output_path", "job_name"}),
      foreign("wandb", "Metrics to Weights & Biases.", {"enabled", "group", "team", "project"}),
      foreign("comet", "Metrics to Comet.",
              {"enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name",
               "experiment_key", "online", "mode"}),
      open_foreign("amp", "Apex mixed precision.", {"enabled", "opt_level"}),
      foreign("torch_autocast", "torch's automatic casts.", {"enabled", "dtype", "lower_precision_safe_modules"}),
      foreign("compile", "DeepCompile.",
              {"deepcompile", "free_activation", "free_activation_threshold", "offload_activation",
               "offload_activation_pin_memory", "offload_opt_states", "double_buffer", "symmetric_memory", "debug_log",
               "offload_parameters", "sync_before_reduce", "sync_after_reduce", "sync_before_allgather",
               "sync_after_allgather", "keep_int_input_tensors", "keep_all_input_tensors", "passes"}),
      open_foreign("expert_parallel", "Experts spread over ranks.", {"enabled", "autoep_size"}),
      foreign("hybrid_engine", "Training and generation in one engine.",
              {"enabled", "max_out_tokens", "inference_tp_size", "release_inference_cache", "pin_parameters",
               "tp_gather_partition_size", "enable_cuda_graph"}),
      foreign("elasticity", "A number of ranks that may change.",
              {"enabled", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
               "prefer_larger_batch", "ignore_non_elastic_batch_info", "version", "num_gpus_per_node",
               "model_parallel_size"}),
      open_foreign("autotuning", "A search for settings.", {"enabled"}),
      open_foreign("curriculum_learning", "Samples in order of difficulty.", {"enabled"}),
      open_foreign("data_efficiency", "Sampling and routing of data.", {"enabled"}),
      open_foreign("progressive_layer_drop", "Layers dropped at random.", {"enabled"}),
      open_foreign("eigenvalue", "Eigenvalues for quantization.", {"enabled"}),
      open_foreign("nebula", "A checkpoint service.", {"enabled"}),
  };
  all.push_back(foreign("tensor_parallel", "Layers split over ranks.",
                        {"autotp_size", "dtype", "tp_overlap_comm", "tensor_parallel", "partition_config",
                         "preset_model", "keep_module_on_host", "kernel_inject"}));
  all.back().off_value = 0;  // its switch is a number of ranks
  for (const auto& [path, meaning] : std::vector<std::pair<const char*, const char*>>{
           {"pipeline", "Pipeline parallelism."},
           {"compression_training", "Quantization and pruning in training."},
           {"sparse_attention", "Sparse attention kernels."},
           {"weight_quantization", "Quantized weights."},
           {"datastates_ckpt", "Asynchronous checkpoints."},
       }) {
    all.push_back(open_foreign(path, meaning, {}));
  }
  return all;
}

}  // namespace shoal::config
