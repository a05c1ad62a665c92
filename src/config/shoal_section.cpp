// The section "shoal": what Shoal adds to DeepSpeed's config.
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

namespace {

std::string check_speculation(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("shoal.placement").as_text() == "config") return "";
  return "is for states that are known to be in host memory, and shoal.placement auto decides that later. Write the "
         "offload sections (`shoal plan` proposes them), or remove the key.";
}

}  // namespace

std::vector<Section> shoal_sections() {
  const std::vector<std::string> transports = {"auto", "shm", "gloo"};
  const std::vector<std::string> placements = {"config", "auto", "fit"};
  const std::vector<std::string> updaters = {"auto", "gpu", "cpu"};
  const std::vector<std::string> on_off = {"auto", "on", "off"};
  Section section{
      .path = "shoal",
      .meaning = "What Shoal adds.",
      .keys = {
          boolean("reproducible", false)
              .means("Every stage reduces gradients at each micro-step, so that all stages agree to the "
                     "bit at any number of "
                     "accumulation steps. SHOAL_REPRODUCIBLE=1 in the environment switches it on too.")
              .fills(bound_to([](auto& c) -> auto& { return c.shoal.reproducible; })),
          text("transport", "auto")
              .one_of(transports)
              .means("How ranks talk. auto: through shared memory when all ranks are on one host, else "
                     "Gloo. The results are "
                     "the same bits.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.shoal.transport; }, transports)),
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
          boolean("verify_offload", false)
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
