// The section "activation_checkpointing". Which units are recomputed is the model's choice, by the engine's recompute
// call; the refinements of DeepSpeed's own checkpointing function change no result, and have no effect.
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

std::vector<Section> activation_checkpointing_sections() {
  Section section{
      .path = "activation_checkpointing",
      .meaning = "Recomputing activations in backward.",
      .keys = {
          boolean("partition_activations", false)
              .means("Shard kept activations over model-parallel ranks.")
              .has_no_effect(
                  "there are no model-parallel ranks to share them; cpu_checkpointing moves them to the host"),
          integer("number_checkpoints", Value())
              .at_least(0)
              .means("How many activations are kept, for the buffers of the next key.")
              .has_no_effect("the model decides what it recomputes"),
          boolean("contiguous_memory_optimization", false)
              .means("Keep activations in one buffer.")
              .has_no_effect("kept activations stay where they were made"),
          boolean("cpu_checkpointing", false)
              .means("Keep the inputs of recomputed regions in host memory between forward and backward. Where the "
                     "model is in host memory, they are there already. In Python: of deepspeed.checkpointing, once its "
                     "configure() has the config.")
              .fills(bound_to([](auto& c) -> auto& { return c.inputs_on_host; })),
          boolean("synchronize_checkpoint_boundary", false)
              .means("Synchronize the device at each recomputed region.")
              .has_no_effect("recomputation runs in order on the caller's thread, so there is nothing to wait for"),
          boolean("profile", false)
              .means("Time recomputed regions.")
              .has_no_effect("wall_clock_breakdown has the times of a step"),
      }};
  return {std::move(section)};
}

}  // namespace shoal::config
