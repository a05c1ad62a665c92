// See auto_placement.h.
#include "train/auto_placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/placement.h"
#include "train/room.h"

namespace shoal::train {

namespace {

std::string words_of(const Placement& placement, const Room& room, size_t activations) {
  const std::string settings = settings_of(placement);
  const MemoryPlan& plan = placement.plan;
  std::string text = fmt::format("placement auto: {}; {} of the GPU with activations, of {}",
                                 settings.empty() ? "everything is on the GPU" : settings,
                                 format_nbytes(plan.total() + activations), format_nbytes(room.device));
  if (plan.host_total() > 0) {
    text += fmt::format("; {} of the host, of {}", format_nbytes(plan.host_total()), format_nbytes(room.host));
  }
  if (plan.disk_total() > 0) text += fmt::format("; {} of disk", format_nbytes(plan.disk_total()));
  return text;
}

}  // namespace

const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device) {
  Config& config = run.config;
  if (!config.shoal.auto_placement) return config;
  config.shoal.auto_placement = false;
  if (!device.is_cuda()) {
    run.choices.push_back("placement auto: without a GPU there is one memory; the offload sections stand as they are");
    return config;
  }
  const Room room = room_of_ranks(config, world, device);
  const ModelLayout layout =
      lay_out(make_blueprint(run.model->units(), config, 1).specs, layout_options(config, world.size()));
  const models::ActivationNbytes activations = activations_of(run, device);
  const Room beside = {room.device, room.host - std::min(room.host, activations.host)};
  const Placement placement = place(beside, activations.device, config, [&](const Config& placed) {
    return plan_memory(layout, memory_options(placed, /*on_gpu=*/true));
  });
  config = with(config, placement);
  run.choices.push_back(words_of(placement, beside, activations.device));
  return config;
}

}  // namespace shoal::train
