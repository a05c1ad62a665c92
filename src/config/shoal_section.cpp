// The section "shoal": what Shoal adds to DeepSpeed's config.
#include "config/sections.h"
#include "config/settings.h"
#include "shoal/transport.h"

namespace shoal::config {

namespace {

std::string check_speculation(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("shoal.placement").as_text() == "config") return "";
  return "is for states that are known to be in host memory, and shoal.placement auto decides that later. Write the "
         "offload sections (`shoal plan` proposes them), or remove the key.";
}

std::string check_shard_size(const Value& value, const Settings& all) {
  if (value == Value(0)) return "";
  const Value mics = all.value("zero_optimization.mics_shard_size");
  if (mics.is_integer() && mics.as_integer() > 0) {
    return "says the same as zero_optimization.mics_shard_size, which is given too. Remove one of them.";
  }
  if (all.value("zero_optimization.stage") == Value(0)) {
    return "says over how many ranks states are sharded, and stage 0 shards nothing. Set stage 1, 2 or 3, or remove "
           "the key.";
  }
  const Value second = all.value("zero_optimization.zero_hpz_partition_size");
  if (second.is_integer() && second.as_integer() > 1) {
    return "has weights sharded inside groups, and zero_hpz_partition_size wants them sharded over all ranks with a "
           "second copy inside groups. Remove one of them.";
  }
  return "";
}

}  // namespace

std::vector<Section> shoal_sections() {
  const std::vector<std::string> transports(kTransportNames.begin(), kTransportNames.end());
  const std::vector<std::string> reducers(kReduceNames.begin(), kReduceNames.end());
  const std::vector<std::string> placements = {"config", "auto", "fit"};
  const std::vector<std::string> updaters = {"auto", "gpu", "cpu"};
  const std::vector<std::string> on_off = {"auto", "on", "off"};
  Section section{
      .path = "shoal",
      .meaning = "What Shoal adds.",
      .keys = {
          boolean("reproducible", false)
              .means("Every stage reduces gradients at each micro-step, as stages 2 and 3 always do, so that all "
                     "stages and all numbers of ranks agree to the bit. SHOAL_REPRODUCIBLE=1 in the environment "
                     "switches it on too.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.reproducible; })),
          integer("fold_group", 0)
              .at_least(0)
              .in("micro-batches")
              .means(
                  "Gradients of a step are added up micro-batch by micro-batch, in their order, whatever rank made "
                  "them. With a group, so many are added up by themselves, and then the sums of groups in order. The "
                  "bits depend on it, and not on the number of ranks. A number that does not divide the ranks takes "
                  "one more fp32 copy of a rank's gradients. 0: one group.")
              .must([](const Value& value, const Settings& all) -> std::string {
                if (value == Value(0) || all.value("shoal.reduce").as_text() != "nccl") return "";
                return "groups micro-batches, and shoal.reduce nccl adds those of all ranks at once. Remove one of "
                       "them.";
              })
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.fold_group; })),
          integer("quantized_gradient_bits", 4)
              .at_least(4)
              .at_most(8)
              .in("bits")
              .means(
                  "With zero_quantized_gradients: the numbers in which hosts send each other sums of gradients. 4, as "
                  "in DeepSpeed, or 8, which sends twice the bytes and rounds 18 times finer.")
              .must([](const Value& value, const Settings&) -> std::string {
                if (value == Value(4) || value == Value(8)) return "";
                return "is no form of ours. Give 4 or 8.";
              })
              .warns([](const Value&, const Settings& all) -> std::string {
                if (all.value("zero_optimization.zero_quantized_gradients") == Value(true)) return "";
                return "has no effect without zero_optimization.zero_quantized_gradients";
              })
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.quantized_gradient_bits; })),
          integer("shard_size", 0)
              .at_least(0)
              .at_most(1 << 20)
              .one_of({"host"})
              .in("ranks")
              .means("The same as zero_optimization.mics_shard_size. \"host\": the ranks of one host, which must be as "
                     "many on every host. 0: not said.")
              .must(check_shard_size)
              .fills({[](Config& c, const Value& value) {
                        c.shoal.shard_size = value.is_text() ? kShardByHost : static_cast<int>(value.as_integer());
                      },
                      [](const Config& c) {
                        return c.shoal.shard_size == kShardByHost ? Value("host") : Value(c.shoal.shard_size);
                      }}),
          text("transport", "auto")
              .one_of(transports)
              .means("How ranks talk. auto: through shared memory when all ranks are on one host, else "
                     "Gloo; memory of GPUs through NCCL where it takes all ranks, else through the hosts. shm, gloo: "
                     "the hosts that way. nccl: memory of GPUs through NCCL, or an error that says why not. "
                     "SHOAL_TRANSPORT in the environment comes before it. The results are the same bits. See "
                     "docs/transports.md.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.transport; }, transports)),
          text("reduce", "exact")
              .one_of(reducers)
              .means("Who adds the gradients of the ranks that NCCL carries. exact: Shoal, in the order of ranks, with "
                     "the bits of every other transport. nccl: NCCL's own reduce-scatter, in the dtype on the wire and "
                     "an order of its own. Other transports add exactly whatever stands here.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.reduce; }, reducers)),
          boolean("tf32", false)
              .means("On a GPU: fp32 matrix products of `shoal train` use the tensor cores' tf32, with 10 "
                     "bits of mantissa instead of 23. No effect on bf16, fp16 or the CPU.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.tf32; })),
          integer("offload_chunk_size", int64_t{1} << 22)
              .at_least(64)
              .in("elements")
              .means("Elements whose optimizer states move between tiers together, rounded up to 64. A "
                     "buffer of the disk tier holds one chunk.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.offload_chunk_size; })),
          boolean("verify_offload", true)
              .means("Compare a checksum of every page that comes back from disk with the one it was "
                     "written with.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.verify_offload; })),
          text("placement", "config")
              .one_of(placements)
              .means(
                  "Where optimizer states, gradients and weights live. config: where the offload sections say. auto: "
                  "on the GPU what fits; what does not, in host memory, or on disk where the "
                  "host is too small and a path names one: offload_optimizer.nvme_path for states, "
                  "offload_param.nvme_path for weights, whose max_in_cpu is chosen too. States leave first; then "
                  "gradients, and the host updates, "
                  "unless offload_update is gpu or offload_gradients off; then weights, at stage 3. Without a GPU, in "
                  "host memory what fits, and the rest of the states on disk. Outside `shoal train`, which knows the "
                  "activations, device_budget (without a GPU host_budget) must be given, for model states alone. fit: "
                  "the "
                  "same as auto, for Hugging Face, whose accelerate takes every \"auto\" for one of its own.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.auto_placement; }, placements)),
          nbytes("device_budget", 0)
              .at_least(0)
              .means("GPU memory of a rank that placement auto and --recompute auto plan with, and that a growing ring "
                     "of states stays "
                     "within. 0: 97 % of its share of what is free.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.device_budget; })),
          nbytes("host_budget", 0)
              .at_least(0)
              .means("Memory of a host that placement auto plans with, for all its ranks. 0: what is free, "
                     "less a tenth.")
              .warns([](const Value&, const Settings& all) -> std::string {
                if (all.value("shoal.placement").as_text() != "config") return "";
                return "only placement auto and --recompute auto read it";
              })
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.host_budget; })),
          text("offload_update", "auto")
              .one_of(updaters)
              .means("On a GPU whose optimizer states are in host memory: who updates. gpu: the states come "
                     "to the GPU ahead of the update and go back behind it, while it computes. cpu: "
                     "gradients come to the host, which updates beside the GPU's work, and weights go back. "
                     "auto: gpu; where the ring does not hold all states after two steps, the host updates "
                     "a share of them, measured so that both end together. States on disk are updated by "
                     "the host. The results are the same bits.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.offload_update; }, updaters)),
          text("offload_gradients", "auto")
              .one_of(on_off)
              .means("On a GPU whose optimizer states the host updates: whether gradients leave the GPU as they are "
                     "reduced, and wait for the update in host memory; two or three units' gradients are on the GPU "
                     "then, and not all. on: those of every unit that only the host updates. auto: with states in "
                     "host memory and offload_update cpu. off: they stay. The results are the same bits.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.offload_gradients; }, on_off)),
          nbytes("offload_ring_size", 0)
              .at_least(0)
              .means(
                  "GPU memory through which optimizer states of the host pass, at least one chunk. The more, the more "
                  "of them are there when the update begins. 0: 1 GiB at first, or an eighth of them where that is "
                  "less, and after two steps half of what those left free.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.offload_ring_size; })),
          number("offload_disk_ratio", 1.0)
              .at_least(0)
              .at_most(1)
              .means("With offload_optimizer.device nvme: the share of all optimizer states that goes to disk. What "
                     "offload_optimizer.ratio moves beyond that stays in host memory. The disk has the states that the "
                     "next forward needs last.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.offload_disk_ratio; })),
          text("defer_update", "auto")
              .one_of(on_off)
              .means(
                  "on: step() decides, and each unit is updated when it is needed next: before its forward, before "
                  "backward, or when it is read through the engine. So states off the GPU have a forward's time more "
                  "to come. A weight that is read past the engine before its unit's next forward may be old, or half "
                  "new, and one that is written there may be lost. off: step() updates. auto: on in `shoal train`, off "
                  "else. No effect where ranks send each other updated weights: stages 1 and 2, and stage 3 with a "
                  "stage3_param_persistence_threshold above 0, in worlds above 1.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.defer_update; }, on_off)),
          boolean("speculative_update", false)
              .means(
                  "Where the host updates (offload_update cpu on a GPU, or ranks that compute on the host): units are "
                  "updated in the backward, as their gradients are whole, on the assumption that the step is not "
                  "skipped and nothing is clipped. Where it holds, only the rest is left to do after the backward; "
                  "else all is done then, as without. For runs that seldom clip. Takes a second place for the "
                  "states in host memory and for their weights: with AdamW and bf16 12 bytes a parameter more. The "
                  "results are the same bits; but a weight that is written past the engine between backward and "
                  "step may be lost. Not with placement auto or weights on disk.")
              .must(check_speculation)
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.speculative_update; })),
          boolean("scale_loss", false)
              .means(
                  "Scale the loss, by the keys of `fp16`, though weights are not fp16: for a forward that computes in "
                  "fp16 by itself, as torch.autocast does. A step with a gradient that is not finite is skipped.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.scale_loss; })),
          integer("leaf_seed", -1)
              .at_least(-1)
              .means(
                  "Seeds what a training forward draws (dropout) by (leaf_seed, step, micro-batch of the global "
                  "batch), "
                  "so that it draws the same at every number of ranks, and a run that resumes draws what it would have "
                  "drawn. In Python the generators of torch, CPU and CUDA, are seeded as a forward of the model with "
                  "gradients begins, and stand as they stood when it ends. -1: they are left alone; `shoal train` then "
                  "takes --seed.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.leaf_seed; })),
          integer("max_nonfinite", 20)
              .at_least(0)
              .in("steps")
              .means(
                  "So many steps in a row whose loss or gradients are not finite end the run with an error that says "
                  "where it began. Steps that a dynamic loss scale skips while it can still fall do not count, nor "
                  "does "
                  "a loss that is not finite where only its rank knows it: on several ranks outside `shoal train`. 0: "
                  "none do.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.max_nonfinite; })),
          nbytes("save_memory", 0)
              .at_least(0)
              .means(
                  "Host memory of a rank for saves behind training (`shoal train --save-every`, save_later): a copy of "
                  "what it saves, taken at once and written behind. What does not fit is written before training goes "
                  "on; less than 20 MiB is as 20 MiB. 0: all that the rank saves, but at most half of what is free "
                  "for the rank, and within host_budget where that is given.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.save_memory; })),
          number("timeout_seconds", 600.0)
              .above(0)
              .at_most(1e6)
              .in("seconds")
              .means("How long a rank waits for the others before every rank stops with an error.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.timeout_seconds; })),
      }};
  return {std::move(section)};
}

}  // namespace shoal::config
