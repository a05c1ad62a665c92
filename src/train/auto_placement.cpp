// See auto_placement.h.
#include "train/auto_placement.h"

#include <utility>

#include "engine/auto_placement.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"

namespace shoal::train {

const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device) {
  Config& config = run.config;
  if (!config.shoal.auto_placement) return config;
  const ModelLayout layout =
      lay_out(make_blueprint(run.model->units(), config, 1).specs, layout_options(config, world.size()));
  const models::ActivationNbytes activations = activations_of(run, device);
  PlacedConfig placed =
      shoal::carry_out_placement(config, layout, {activations.device, activations.host}, world, device);
  config = std::move(placed.config);
  run.choices.push_back(std::move(placed.words));
  return config;
}

}  // namespace shoal::train
