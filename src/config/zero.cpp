// The section "zero_optimization", but for its offload blocks (offload.cpp).
#include <cstdint>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

// "auto" as Hugging Face fills it: a size made from the model's hidden size.
AutoRule from_hidden(int64_t (*size)(int64_t hidden)) {
  return [size](const ConfigContext& context, const Settings&) -> Known {
    if (!context.hidden_size) return std::nullopt;
    return Value(size(*context.hidden_size));
  };
}

std::vector<Key> carried_out_keys() {
  return {
      integer("stage", 0)
          .at_least(0)
          .at_most(3)
          .or_else("is not a ZeRO stage. Use 0, 1, 2 or 3.")
          .means(
              "What is sharded over the ranks. 0: nothing; 1: optimizer states; 2: and gradients; 3: and parameters.")
          .fills(bound_to([](auto& c) -> auto& { return c.zero.stage; })),
      boolean("overlap_comm", true)
          .or_null()
          .also_called("comm_overlap")
          .means(
              "Communicate on a worker while the model computes; the results are the same bits either way. DeepSpeed "
              "switches this on by itself only at stage 3.")
          .fills({[](Config& c, const Value& value) { c.zero.overlap_comm = value.is_null() || value.as_boolean(); },
                  [](const Config& c) { return Value(c.zero.overlap_comm); }}),
      integer("reduce_bucket_size", int64_t{500'000'000})
          .at_least(1)
          .in("elements")
          .or_else("elements is no size to cut gradients into. Give at least 1, or 5e8, the default.")
          .means("Gradients that are copied on their way (Gloo, shared memory that peers cannot open) are reduced in "
                 "pieces "
                 "of at most this size, and of 8 MiB; over NCCL of at most this size, and of 64 MiB. Ranks that read "
                 "each other's memory in place have nothing to cut: they reduce a unit in one go. It changes no bit. "
                 "A larger value than the model costs nothing.")
          .on_auto("hidden size squared; else the default", from_hidden([](int64_t h) { return h * h; }))
          .fills(bound_to([](auto& c) -> auto& { return c.zero.reduce_bucket_size; })),
      integer("prefetch_bucket_size", int64_t{50'000'000})
          .at_least(0)
          .in("elements")
          .also_called("stage3_prefetch_bucket_size")
          .means("Stage 3: how far ahead of their use parameters are gathered. 0: no prefetch. With offload_param the "
                 "next "
                 "unit is gathered ahead even if it is larger.")
          .on_auto("0.9 x hidden size squared, rounded down; else the default",
                   from_hidden([](int64_t h) { return h * h / 10 * 9 + h * h % 10 * 9 / 10; }))
          .fills(bound_to([](auto& c) -> auto& { return c.zero.prefetch_bucket_size; })),
      integer("param_persistence_threshold", int64_t{100'000})
          .at_least(0)
          .in("elements")
          .also_called("stage3_param_persistence_threshold")
          .means("Stage 3: parameters of at most this size stay gathered.")
          .on_auto("10 x hidden size; else the default", from_hidden([](int64_t h) { return 10 * h; }))
          .fills(bound_to([](auto& c) -> auto& { return c.zero.param_persistence_threshold; })),
      integer("model_persistence_threshold", INT64_MAX)
          .at_least(0)
          .in("elements")
          .also_called("stage3_model_persistence_threshold")
          .means("Stage 3: at most so many elements stay gathered in all.")
          .fills(bound_to([](auto& c) -> auto& { return c.zero.model_persistence_threshold; })),
      integer("max_live_parameters", int64_t{1'000'000'000})
          .at_least(0)
          .in("elements")
          .also_called("stage3_max_live_parameters")
          .means("Stage 3: prefetch stops at so many gathered elements. The unit in use is always gathered.")
          .fills(bound_to([](auto& c) -> auto& { return c.zero.max_live_parameters; })),
  };
}

bool is_on(const Settings& all, const char* path, int64_t from) {
  const Value value = all.value(path);
  return value.is_integer() && value.as_integer() >= from;
}

std::string check_mics(const Value& value, const Settings& all) {
  if (value.as_integer() < 1) return "";
  if (all.value("zero_optimization.stage") == Value(0)) {
    return "says over how many ranks states are sharded, and stage 0 shards nothing. Set stage 1, 2 or 3, or remove "
           "the key.";
  }
  if (is_on(all, "zero_optimization.zero_hpz_partition_size", 2)) {
    return "has weights sharded inside groups, and zero_hpz_partition_size wants them sharded over all ranks with a "
           "second copy inside groups. Remove one of them.";
  }
  return "";
}

std::string check_hierarchical(const Value& value, const Settings& all) {
  if (!value.as_boolean()) return "";
  if (all.value("zero_optimization.stage") != Value(3)) {
    return "is about gathering weights, which only stage 3 does. Set stage 3, or remove the key.";
  }
  const bool by_shoal = all.value("shoal.shard_size") != Value(0);
  if (is_on(all, "zero_optimization.mics_shard_size", 1) || by_shoal) return "";
  return "is about the groups of mics_shard_size, and there are none. Set mics_shard_size (to all ranks: the whole "
         "world is one group), or remove the key.";
}

std::string check_hpz(const Value& value, const Settings& all) {
  if (value.as_integer() < 2) return "";
  if (all.value("zero_optimization.stage") != Value(3)) {
    return "keeps a second copy of sharded weights, and only stage 3 shards weights. Set stage 3, or remove the key.";
  }
  if (all.value("zero_optimization.offload_param.device") != Value("none")) {
    return "keeps a second copy of the weights on the device, which offload_param wants free of them. Remove one of "
           "them.";
  }
  return "";
}

// Groups of ranks inside the world.
std::vector<Key> hybrid_keys() {
  return {
      integer("zero_hpz_partition_size", 1)
          .at_least(0)
          .at_most(1 << 20)
          .in("ranks")
          .means(
              "Stage 3 (ZeRO++ hpZ): a second copy of the weights, sharded inside groups of so many ranks that follow "
              "each other, from the first forward after an update to the next update; backward gathers inside the "
              "group. It must divide the ranks. 0, 1: none. See docs/hybrid.md.")
          .must(check_hpz)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.hpz_partition_size; })),
      integer("mics_shard_size", -1)
          .at_least(-1)
          .at_most(1 << 20)
          .in("ranks")
          .means("Stages 1 to 3 (MiCS): shard inside groups of so many ranks that follow each other, which each hold a "
                 "whole copy; the results are the same bits. It must divide the ranks. Below 1: over all ranks. See "
                 "docs/hybrid.md.")
          .must(check_mics)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.mics_shard_size; })),
      boolean("mics_hierarchical_params_gather", false)
          .means("MiCS, where a group spans several hosts: gather between hosts first, each part once, then inside a "
                 "host. The ranks of a host must divide mics_shard_size.")
          .must(check_hierarchical)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.mics_hierarchical_gather; })),
  };
}

std::vector<Key> no_effect_keys() {
  return {
      boolean("contiguous_gradients", true)
          .means("Copy gradients into one buffer as they come.")
          .has_no_effect("gradients always go straight into the contiguous flat of their unit"),
      boolean("reduce_scatter", true)
          .means("Reduce each gradient to its owner only.")
          .has_no_effect("each stage always communicates the least it can, with the same bits"),
      boolean("use_multi_rank_bucket_allreduce", true)
          .means("Reduce the parts of several owners in one call.")
          .has_no_effect("a reduction always serves all owners in one call"),
      boolean("allgather_partitions", true)
          .means("Nothing, in DeepSpeed either.")
          .has_no_effect("DeepSpeed reads this key and does nothing with it"),
      integer("allgather_bucket_size", int64_t{500'000'000})
          .at_least(0)
          .in("elements")
          .means("Stages 1 and 2: size of the pieces in which updated parameters are gathered.")
          .has_no_effect("updated parameters are gathered in place, unit by unit, without a bucket"),
      integer("sub_group_size", int64_t{1'000'000'000})
          .at_least(0)
          .in("elements")
          .means("Stage 3: size of the tiles in which the optimizer runs.")
          .has_no_effect("the optimizer runs unit by unit"),
      integer("max_reuse_distance", int64_t{1'000'000'000})
          .at_least(0)
          .in("elements")
          .also_called("stage3_max_reuse_distance")
          .means("Stage 3: keep a parameter gathered when it is used again within this distance.")
          .has_no_effect("a unit is released when its last use in forward or backward is over"),
      integer("module_granularity_threshold", 0)
          .at_least(0)
          .in("elements")
          .also_called("stage3_module_granularity_threshold")
          .means("Stage 3: gather modules with smaller parameters as a whole.")
          .has_no_effect("units are always gathered as a whole"),
      boolean("use_all_reduce_for_fetch_params", false)
          .also_called("stage3_use_all_reduce_for_fetch_params")
          .means("Stage 3: gather by an all-reduce.")
          .has_no_effect("gathers are in place, so an all-reduce would only move more bytes"),
      boolean("allgather_sequential", false)
          .also_called("stage3_allgather_sequential")
          .means("Stage 3: gather parameter by parameter to save buffers.")
          .has_no_effect("gathers are in place and need no buffers"),
      boolean("gather_16bit_weights_on_model_save", false)
          .also_called("stage3_gather_16bit_weights_on_model_save")
          .also_called("stage3_gather_fp16_weights_on_model_save")
          .means("Stage 3: save whole weights with save_16bit_model.")
          .has_no_effect("this door saves no model; gather parameters with the engine to read them"),
      boolean("ignore_unused_parameters", true)
          .means("Accept parameters without a gradient.")
          .has_no_effect("parameters that a step does not use are always accepted; their gradient is zero"),
      boolean("round_robin_gradients", false)
          .means("Stages 1 and 2: deal gradients to ranks in turn.")
          .has_no_effect("every rank owns an equal slice of every unit, so the load is even as it is"),
      boolean("memory_efficient_linear", true)
          .means("Stage 3: replace torch's linear function by one that keeps no gathered weight.")
          .has_no_effect("a released weight is gathered again for backward without replacing any function"),
      boolean("override_module_apply", true)
          .means("Stage 3: gather parameters inside Module.apply.")
          .has_no_effect("there are no Python modules in this door"),
      boolean("log_trace_cache_warnings", false)
          .means("Stage 3: warn when the order of modules changes.")
          .has_no_effect("a change in the order of units is always agreed between ranks or reported"),
      boolean("enable_sanity_checks", false)
          .means("Stage 3: check the state of parameters as they are used.")
          .has_no_effect("the engine's checks are always on"),
      boolean("load_from_fp32_weights", true)
          .means("Take the masters from a checkpoint rather than from its 16-bit weights.")
          .has_no_effect("this door loads no DeepSpeed checkpoints"),
  };
}

std::vector<Key> refused_keys() {
  return {
      anything("zenflow")
          .means("Updates of important gradients first.")
          .is_refused("is not supported: it leaves gradients to later steps. Remove the section, and use "
                      "offload_optimizer."),
  };
}

// Forms of other communication and of memory: the results are the same without them.
std::vector<Key> passed_over_keys() {
  return {
      boolean("elastic_checkpoint", false)
          .means("Checkpoints for another number of ranks.")
          .has_no_effect("every checkpoint loads on any number of ranks"),
      boolean("pipeline_loading_checkpoint", false)
          .means("Load checkpoints one rank after another.")
          .has_no_effect("each rank reads what it owns"),
      boolean("compute_grad_norm", true)
          .means("Stages 1 and 2: compute the norm of the gradient where nothing is clipped.")
          .has_no_effect("the norm is always computed: it tells whether a gradient is not finite"),
      boolean("parameter_alignment", false)
          .means("Stages 1 and 2: begin each parameter at a multiple of 16 bytes.")
          .has_no_effect("the layout of flats is the engine's"),
      boolean("save_muon_momentum_buffer_in_memory", false)
          .means("Muon: keep its momentum off the disk.")
          .has_no_effect("there is no Muon"),
      boolean("legacy_stage1", false)
          .means("An older stage 1, gone from DeepSpeed too.")
          .has_no_effect("there is one stage 1"),
      boolean("cpu_offload", false).or_null().means("Deprecated: true is read as `offload_optimizer.device` \"cpu\"."),
      boolean("cpu_offload_param", false)
          .or_null()
          .means("Deprecated: true is read as `offload_param.device` \"cpu\"."),
      boolean("cpu_offload_use_pin_memory", false)
          .or_null()
          .means("Deprecated.")
          .has_no_effect("what a GPU copies is page-locked wherever the system allows it"),
  };
}

}  // namespace

std::vector<Section> zero_sections() {
  Section zero{
      .path = "zero_optimization", .meaning = "Sharding over ranks. All sizes are elements, not bytes.", .keys = {}};
  zero.key_of_boolean = "zero_optimization.stage";
  for (const auto& make :
       {carried_out_keys, hybrid_keys, quantized_keys, no_effect_keys, passed_over_keys, refused_keys}) {
    for (Key& key : make()) zero.keys.push_back(std::move(key));
  }
  const std::string unmarked =
      "all ranks follow one agreed order of units, so modules that only some ranks run need no mark";
  Section leaf{.path = "zero_optimization.leaf_module",
               .meaning = "Modules that stage 3 treats as one.",
               .keys = {
                   list_of_texts("classes").means("By class.").has_no_effect(unmarked),
                   list_of_texts("names").means("By name.").has_no_effect(unmarked),
                   list_of_texts("name_suffixes").means("By the end of the name.").has_no_effect(unmarked),
               }};
  leaf.nullable = true;
  return {std::move(zero), std::move(leaf), loco_section()};
}

}  // namespace shoal::config
