// See auto_recompute.h.
#include "train/auto_recompute.h"

#include <fmt/format.h>

#include "base/text.h"
#include "comm/group/full_group.h"
#include "engine/blueprint.h"
#include "engine/room.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal::train {

RecomputeAnswer choose_recompute(const RecomputeQuestion& question) {
  const bool on_gpu = question.step.device == at::kCUDA;
  Config config = question.config;
  if (on_gpu && config.shoal.auto_placement) {
    config.zero.offload_optimizer.tier = config.zero.offload_param.tier = Tier::device;
  }
  const ModelLayout layout = layout_of(question.model.units(), config, question.world);
  const MemoryPlan plan = plan_memory(layout, memory_options(config, on_gpu));
  RecomputeAnswer answer;
  // On the CPU what is off the device is in the same memory.
  answer.states = plan.total() + (on_gpu ? 0 : plan.host_total());
  const auto activations = [&](const models::RecomputedBlocks& blocks) {
    return question.model.activation_nbytes(question.step, blocks).device;
  };
  answer.blocks = models::least_recompute(question.model.info().layers, [&](const models::RecomputedBlocks& blocks) {
    return answer.states + activations(blocks) <= question.room;
  });
  answer.activations = activations(answer.blocks);
  answer.fits = answer.states + answer.activations <= question.room;
  return answer;
}

RecomputeChoice settle_recompute(const PreparedRun& run, Group& world, at::Device device) {
  if (run.recompute != models::Recompute::automatic) return {run.model->recomputed(), ""};
  const size_t room = room_of_ranks(run.config, world, device).device;
  const RecomputeAnswer answer = choose_recompute(
      {*run.model, micro_step_of(run, device), with_hosts(run.config, full(world).hosts()), world.size(), room});
  const bool has_somewhere = device.is_cuda() || !run.config.zero.offload_optimizer.nvme_path.empty();
  const bool placement_follows = has_somewhere && run.config.shoal.auto_placement;
  return {answer.blocks,
          fmt::format("recompute auto: {}; {} of activations beside {} of model states, of {}{}",
                      models::describe(answer.blocks, run.model->info().layers), format_nbytes(answer.activations),
                      format_nbytes(answer.states), format_nbytes(room),
                      answer.fits || placement_follows ? "" : ": that does not fit. `shoal plan` says what would")};
}

}  // namespace shoal::train
