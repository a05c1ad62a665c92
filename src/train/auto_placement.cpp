// See auto_placement.h.
#include "train/auto_placement.h"

#include "engine/blueprint.h"

namespace shoal::train {

PlacedConfig settle_placement(const PreparedRun& run, const models::RecomputedBlocks& blocks, Group& world,
                              at::Device device) {
  if (!run.config.shoal.auto_placement) return {run.config, {}, ""};
  const ModelLayout layout = layout_of(run.model->units(), run.config, world.size());
  const models::ActivationNbytes activations = activations_of(run, blocks, device);
  return carry_out_placement(run.config, layout, {activations.device, activations.host}, world, device);
}

}  // namespace shoal::train
