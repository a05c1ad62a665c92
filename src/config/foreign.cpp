// Sections of DeepSpeed's config that Shoal does not have. Those that change no result are accepted with a notice; each
// of the others is refused by name while it is switched on, with what there is in its place, and accepted with a notice
// while it is off, so that a config with everything spelled out still runs.
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

// Refused while it is on.
Section refused(std::string path, std::string meaning, std::string instead, const std::vector<const char*>& names) {
  Section section = foreign(std::move(path), std::move(meaning), names);
  section.instead = std::move(instead);
  return section;
}

// Its keys are many and change with DeepSpeed's version; only the switch matters.
Section refused_openly(std::string path, std::string meaning, std::string instead,
                       const std::vector<const char*>& names) {
  Section section = refused(std::move(path), std::move(meaning), std::move(instead), names);
  section.is_open = true;
  return section;
}

Section harmless(std::string path, std::string meaning, std::string notice, const std::vector<const char*>& names) {
  Section section = foreign(std::move(path), std::move(meaning), names);
  section.harmless = std::move(notice);
  return section;
}

Section harmless_openly(std::string path, std::string meaning, std::string notice,
                        const std::vector<const char*>& names) {
  Section section = harmless(std::move(path), std::move(meaning), std::move(notice), names);
  section.is_open = true;
  return section;
}

std::vector<Section> harmless_sections() {
  return {
      harmless("flops_profiler", "Counts of arithmetic by module.",
               "the package deepspeed carries it out; wall_clock_breakdown has the times of a step",
               {"enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed",
                "output_file"}),
      harmless(
          "comms_logger", "A log of collectives.",
          "the package deepspeed carries it out; metrics.jsonl of `shoal train` has the time that a step waits for "
          "them",
          {"enabled", "verbose", "prof_all", "debug", "prof_ops"}),
      harmless_openly("compile", "DeepCompile.",
                      "nothing is compiled by the config; engine.compile() compiles the forward of each block",
                      {"deepcompile"}),
      harmless_openly("pipeline", "Pipeline parallelism.",
                      "there are no pipeline stages; every rank has all layers, sharded by the ZeRO stage", {}),
      harmless_openly("datastates_ckpt", "Asynchronous checkpoints.",
                      "a checkpoint is on disk when save_checkpoint returns", {}),
  };
}

std::vector<Section> refused_sections() {
  const std::string data = "Order the samples in your own sampler.";
  const std::string quantization = "Quantize before or after training, with a library made for it.";
  const std::string other_monitor =
      "Use wandb, tensorboard or csv_monitor; or log by yourself: engine.get_lr() and engine.get_global_grad_norm() "
      "stand beside the loss.";
  std::vector<Section> all = {
      refused("comet", "Metrics to Comet.", other_monitor,
              {"enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name",
               "experiment_key", "online", "mode"}),
      refused_openly("mlflow", "Metrics to MLflow.", other_monitor, {"enabled"}),
      refused_openly("amp", "Apex mixed precision.", "Use bf16, fp16 or torch_autocast.", {"enabled", "opt_level"}),
      refused("torch_autocast", "torch's automatic casts.",
              "The package deepspeed carries it out; here use bf16.enabled.",
              {"enabled", "dtype", "lower_precision_safe_modules"}),
      refused_openly("expert_parallel", "Experts spread over ranks.",
                     "Use stage 3, which shards experts as it shards every weight.", {"enabled", "autoep_size"}),
      refused("hybrid_engine", "Training and generation in one engine.",
              "Generate with the model itself: zero.unwrap_model_for_generation.",
              {"enabled", "max_out_tokens", "inference_tp_size", "release_inference_cache", "pin_parameters",
               "tp_gather_partition_size", "enable_cuda_graph"}),
      refused("elasticity", "A number of ranks that may change.",
              "Give the batch keys themselves; a checkpoint resumes on any number of ranks.",
              {"enabled", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
               "prefer_larger_batch", "ignore_non_elastic_batch_info", "version", "num_gpus_per_node",
               "model_parallel_size"}),
      refused_openly("autotuning", "A search for settings.", "`shoal plan` says which stage and offload fit.",
                     {"enabled"}),
      refused_openly("curriculum_learning", "Samples in order of difficulty.", data, {"enabled"}),
      refused_openly("data_efficiency", "Sampling and routing of data.", data, {"enabled"}),
      refused_openly("progressive_layer_drop", "Layers dropped at random.", "Drop them in the model's own forward.",
                     {"enabled"}),
      refused_openly("eigenvalue", "Eigenvalues for quantization.", quantization, {"enabled"}),
      refused_openly("quantize_training", "Quantized training.", quantization, {"enabled"}),
      refused_openly("compression_training", "Quantization and pruning in training.", quantization, {}),
      refused_openly("weight_quantization", "Quantized weights.", quantization, {}),
      refused_openly("nebula", "A checkpoint service.", "save_checkpoint writes to the folder that it is given.",
                     {"enabled"}),
      refused_openly("sparse_attention", "Sparse attention kernels.", "Choose the attention in the model.", {}),
      refused("tensor_parallel", "Layers split over ranks.", "Use stage 3, which shards every weight over all ranks.",
              {"autotp_size", "dtype", "tp_overlap_comm", "tensor_parallel", "partition_config", "preset_model",
               "keep_module_on_host", "kernel_inject", "tp"}),
  };
  all.back().off_value = 0;  // its switch is a number of ranks
  for (Section& section : all) section.is_on_by_itself = section.path == "quantize_training";
  return all;
}

}  // namespace

std::vector<Section> foreign_sections() {
  std::vector<Section> all = harmless_sections();
  for (Section& section : refused_sections()) all.push_back(std::move(section));
  return all;
}

}  // namespace shoal::config
