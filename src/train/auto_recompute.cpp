// See auto_recompute.h.
#include "train/auto_recompute.h"

#include <fmt/format.h>

#include "base/text.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "train/room.h"

namespace shoal::train {

void carry_out_recompute(PreparedRun& run, Group& world, at::Device device) {
  if (run.recompute != models::Recompute::automatic) return;
  Config config = run.config;
  if (config.shoal.auto_placement) {
    config.zero.offload_optimizer.tier = config.zero.offload_param.tier = Tier::device;
  }
  const ModelLayout layout =
      lay_out(make_blueprint(run.model->units(), config, 1).specs, layout_options(config, world.size()));
  const MemoryPlan plan = plan_memory(layout, memory_options(config, device.is_cuda()));
  // On the CPU what is off the device is in the same memory.
  const size_t states = plan.total() + (device.is_cuda() ? 0 : plan.host_total());
  const size_t room = room_of_ranks(config, world, device).device;
  const models::MicroStep step = micro_step_of(run, device);
  const int64_t layers = run.model->info().layers;
  const models::RecomputedBlocks blocks =
      models::least_recompute(layers, [&](const models::RecomputedBlocks& recomputed) {
        return states + run.model->activation_nbytes(step, recomputed).device <= room;
      });
  run.model->set_recomputed(blocks);
  run.choices.push_back(fmt::format("recompute auto: {}; {} of activations beside {} of model states, of {}",
                                    models::describe(blocks, layers),
                                    format_nbytes(run.model->activation_nbytes(step).device), format_nbytes(states),
                                    format_nbytes(room)));
}

}  // namespace shoal::train
