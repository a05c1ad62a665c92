// The section "checkpoint". Checkpoints have one format and one way of saving (docs/formats/checkpoint.md), so no key
// changes them: what asks for another format or place is refused, the rest has no effect.
#include "config/sections.h"

namespace shoal::config {

std::vector<Section> checkpoint_sections() {
  Section checkpoint{
      .path = "checkpoint",
      .meaning = "Saving and loading.",
      .keys = {
          text("tag_validation", "Warn")
              .one_of({"Warn", "Ignore", "Fail"})
              .means("What happens when ranks save under different tags.")
              .has_no_effect("ranks that save different steps always stop with an error"),
          boolean("load_universal", false)
              .means("Load DeepSpeed's universal checkpoints.")
              .is_refused("is carried out by the package deepspeed only. Load the checkpoint there."),
          boolean("async_save", false)
              .means("Save in DeepSpeed's layout behind training.")
              .is_refused(
                  "is not supported: save_checkpoint of the package deepspeed writes before it returns. Remove the "
                  "key; saves behind training are `shoal train --save-every` and save_later of the package shoal."),
          boolean("use_node_local_storage", false)
              .means("Save on every host's own disk.")
              .is_refused(
                  "is not supported: a checkpoint is one folder that all ranks see. Remove the key, and save to a "
                  "shared disk."),
          boolean("checkpoint_serialization", true)
              .means("Serialize tensors as torch.save does.")
              .has_no_effect("checkpoints have a format of their own"),
          anything("writer")
              .means("DeepSpeed's faster writers.")
              .has_no_effect("there is one way of writing, and the files are the same"),
      }};
  Section parallel{
      .path = "checkpoint.parallel_write",
      .meaning = "Saving by several ranks.",
      .keys = {
          boolean("pipeline_stage", false)
              .means("Save layers of a pipeline stage in parallel.")
              .has_no_effect("there are no pipeline stages; all ranks save their own part at the same time"),
      }};
  return {std::move(checkpoint), std::move(parallel)};
}

}  // namespace shoal::config
