// See auto_placement.h.
#include "train/auto_placement.h"

#include "comm/group/full_group.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"

namespace shoal::train {

PlacedConfig settle_placement(const PreparedRun& run, const models::RecomputedBlocks& blocks, Group& world,
                              at::Device device) {
  const Config config = with_hosts(run.config, full(world).hosts());
  if (!config.shoal.auto_placement) return {config, {}, ""};
  const ModelLayout layout = layout_of(run.model->units(), config, world.size());
  const models::ActivationNbytes activations = activations_of(run, blocks, device);
  return carry_out_placement(config, layout, {activations.device, activations.host}, world, device);
}

}  // namespace shoal::train
