#include "config/table.h"

#include <gtest/gtest.h>

#include <set>

#include "config/value_check.h"

namespace shoal::config {

TEST(Table, EverySpellingOfEverySectionIsUnique) {
  for (const Section& section : table().sections()) {
    std::set<std::string> seen;
    for (const std::string& word : table().words_of(section))
      EXPECT_TRUE(seen.insert(word).second) << section.path << " " << word;
  }
}

TEST(Table, EverySectionHasAParent) {
  for (const Section& section : table().sections()) EXPECT_NE(table().section(parent_of(section.path)), nullptr);
}

TEST(Table, EveryDefaultPassesItsOwnCheck) {
  for (const Section& section : table().sections()) {
    for (const Key& key : section.keys) {
      if (key.fallback_by_type.empty()) {
        EXPECT_EQ(check_value(key, key.fallback).mistake, "") << key.path;
      }
      for (const auto& [type, fallback] : key.fallback_by_type) {
        EXPECT_TRUE(key.required || check_value(key, fallback).mistake.empty()) << key.path << " of " << type;
      }
    }
  }
}

TEST(Table, EverySentenceEndsOnce) {
  for (const Section& section : table().sections()) {
    EXPECT_TRUE(section.meaning.ends_with(".")) << section.path;
    for (const Key& key : section.keys) {
      EXPECT_TRUE(section.is_foreign || key.meaning.ends_with(".")) << key.path;
      // A notice adds its own full stop; a refusal is printed as it stands.
      EXPECT_EQ(key.reason.ends_with("."), key.status == Status::refused && !key.reason.empty()) << key.path;
    }
  }
}

TEST(Table, KnowsEveryKeyThatDeepSpeedsReferenceLists) {
  for (const char* path : {"train_batch_size",
                           "train_micro_batch_size_per_gpu",
                           "gradient_accumulation_steps",
                           "managed_gradient_accumulation",
                           "steps_per_print",
                           "gradient_clipping",
                           "prescale_gradients",
                           "gradient_predivide_factor",
                           "gradient_allreduce_op",
                           "communication_data_type",
                           "seq_parallel_communication_data_type",
                           "sparse_gradients",
                           "disable_allgather",
                           "dump_state",
                           "wall_clock_breakdown",
                           "memory_breakdown",
                           "dataloader_drop_last",
                           "graph_harvesting",
                           "zero_allow_untested_optimizer",
                           "zero_force_ds_cpu_optimizer",
                           "vocabulary_size",
                           "log_level",
                           "use_data_before_expert_parallelism",
                           "sequence_parallel_size",
                           "data_parallel_size",
                           "fp16.enabled",
                           "fp16.auto_cast",
                           "fp16.loss_scale",
                           "fp16.initial_scale_power",
                           "fp16.loss_scale_window",
                           "fp16.hysteresis",
                           "fp16.consecutive_hysteresis",
                           "fp16.min_loss_scale",
                           "fp16.fp16_master_weights_and_grads",
                           "bf16.enabled",
                           "bf16.immediate_grad_update",
                           "bf16.check_grad_overflow",
                           "bf16.bf16_master_weights_and_grads",
                           "bf16.bf16_optimizer_states",
                           "data_types.grad_accum_dtype",
                           "data_types.param_dtype",
                           "data_types.buffer_dtype",
                           "zero_optimization.stage",
                           "zero_optimization.contiguous_gradients",
                           "zero_optimization.reduce_scatter",
                           "zero_optimization.reduce_bucket_size",
                           "zero_optimization.use_multi_rank_bucket_allreduce",
                           "zero_optimization.allgather_partitions",
                           "zero_optimization.allgather_bucket_size",
                           "zero_optimization.overlap_comm",
                           "zero_optimization.load_from_fp32_weights",
                           "zero_optimization.elastic_checkpoint",
                           "zero_optimization.zenflow",
                           "zero_optimization.sub_group_size",
                           "zero_optimization.cpu_offload",
                           "zero_optimization.cpu_offload_param",
                           "zero_optimization.cpu_offload_use_pin_memory",
                           "zero_optimization.prefetch_bucket_size",
                           "zero_optimization.param_persistence_threshold",
                           "zero_optimization.model_persistence_threshold",
                           "zero_optimization.max_live_parameters",
                           "zero_optimization.max_reuse_distance",
                           "zero_optimization.gather_16bit_weights_on_model_save",
                           "zero_optimization.module_granularity_threshold",
                           "zero_optimization.use_all_reduce_for_fetch_params",
                           "zero_optimization.allgather_sequential",
                           "zero_optimization.ignore_unused_parameters",
                           "zero_optimization.legacy_stage1",
                           "zero_optimization.round_robin_gradients",
                           "zero_optimization.zero_hpz_partition_size",
                           "zero_optimization.zero_quantized_weights",
                           "zero_optimization.zero_quantized_nontrainable_weights",
                           "zero_optimization.zero_quantized_gradients",
                           "zero_optimization.zeropp_loco_param.err_beta",
                           "zero_optimization.zeropp_loco_param.reset_T",
                           "zero_optimization.mics_shard_size",
                           "zero_optimization.mics_hierarchical_params_gather",
                           "zero_optimization.memory_efficient_linear",
                           "zero_optimization.pipeline_loading_checkpoint",
                           "zero_optimization.override_module_apply",
                           "zero_optimization.log_trace_cache_warnings",
                           "zero_optimization.enable_sanity_checks",
                           "zero_optimization.save_muon_momentum_buffer_in_memory",
                           "zero_optimization.leaf_module.classes",
                           "zero_optimization.offload_param.device",
                           "zero_optimization.offload_param.max_in_cpu",
                           "zero_optimization.offload_optimizer.ratio",
                           "zero_optimization.offload_optimizer.super_offload",
                           "aio.block_size",
                           "aio.queue_depth",
                           "aio.intra_op_parallelism",
                           "aio.single_submit",
                           "aio.overlap_events",
                           "aio.use_gds",
                           "activation_checkpointing.number_checkpoints",
                           "optimizer.legacy_fusion",
                           "optimizer.params.lr",
                           "scheduler.params.decay_mom_rate",
                           "checkpoint.tag_validation",
                           "checkpoint.parallel_write.pipeline_stage",
                           "timers.throughput.enabled",
                           "shoal.reproducible"}) {
    EXPECT_NE(table().key(path), nullptr) << path;
  }
}

TEST(Table, FindsByCanonicalPathAndBySpelling) {
  const Section& zero = *table().section("zero_optimization");
  EXPECT_EQ(table().find_key(zero, "stage3_prefetch_bucket_size")->name, "prefetch_bucket_size");
  EXPECT_EQ(table().key("zero_optimization.stage3_prefetch_bucket_size"), nullptr);
  EXPECT_EQ(table().find_section(*table().section(""), "bfloat16")->path, "bf16");
  EXPECT_EQ(table().key("no.such.key"), nullptr);
  EXPECT_EQ(table().homes_of("stage"), std::vector<std::string>{"\"zero_optimization\""});
}

TEST(Table, PathsComeApartAndTogether) {
  EXPECT_EQ(parent_of("a.b.c"), "a.b");
  EXPECT_EQ(last_of("a.b.c"), "c");
  EXPECT_EQ(parent_of("a"), "");
  EXPECT_EQ(path_in("", "a"), "a");
  EXPECT_EQ(path_in("a.b", "c"), "a.b.c");
}

}  // namespace shoal::config
