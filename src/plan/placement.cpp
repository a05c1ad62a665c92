// See placement.h.
#include "plan/placement.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "shoal/error.h"

namespace shoal {

namespace {

MemoryPlan plan_of(const ModelLayout& layout, Config config, Tier optimizer, double ratio, Tier param) {
  config.zero.offload_optimizer.tier = optimizer;
  config.zero.offload_optimizer.ratio = ratio;
  config.zero.offload_param.tier = param;
  return plan_memory(layout, memory_options(config, /*on_gpu=*/true));
}

// The least share of states, in hundredths, that must leave the device; above 1: all of them are not enough.
double share_to_move(const ModelLayout& layout, const Config& config, Tier tier, Tier param, size_t device) {
  const MemoryPlan all_moved = plan_of(layout, config, tier, 1, param);
  const MemoryPlan none_moved = plan_of(layout, config, Tier::device, 1, param);
  if (all_moved.total() > device) return 2;
  const size_t beside = all_moved.total();  // the ring counts, however little is moved
  const double states = static_cast<double>(none_moved.states - all_moved.states);
  const double stays = static_cast<double>(device - beside);
  return std::ceil(std::max(0.0, 1 - stays / states) * 100) / 100;
}

}  // namespace

Placement place(const ModelLayout& layout, const Config& config, const Room& room, size_t activations) {
  const size_t device = room.device > activations ? room.device - activations : 0;
  const auto on = [&](Tier optimizer, double ratio, Tier param, const std::string& why) {
    Placement placement{config.zero.offload_optimizer, config.zero.offload_param, why};
    placement.optimizer.tier = optimizer;
    placement.optimizer.ratio = ratio;
    placement.param.tier = param;
    return placement;
  };
  const MemoryPlan resident = plan_of(layout, config, Tier::device, 1, Tier::device);
  if (resident.total() <= device) {
    return on(Tier::device, 1, Tier::device,
              fmt::format("everything is on the GPU: {} with activations, of {}",
                          format_nbytes(resident.total() + activations), format_nbytes(room.device)));
  }
  for (const Tier param : {Tier::device, Tier::host}) {
    if (param == Tier::host && config.zero.stage < 3) continue;
    for (const Tier tier : {Tier::host, Tier::disk}) {
      if (tier == Tier::disk && config.zero.offload_optimizer.nvme_path.empty()) continue;
      const double share = share_to_move(layout, config, tier, param, device);
      if (share > 1) continue;
      const MemoryPlan plan = plan_of(layout, config, tier, share, param);
      if (plan.total() > device || plan.host_total() > room.host) continue;
      return on(tier, share, param,
                fmt::format("{:.0f} % of the optimizer states are on the {} tier{}: {} of the GPU with activations, of "
                            "{}; {} of the host, of {}{}",
                            share * 100, name_of(tier), param == Tier::host ? ", the weights on the host tier" : "",
                            format_nbytes(plan.total() + activations), format_nbytes(room.device),
                            format_nbytes(plan.host_total()), format_nbytes(room.host),
                            plan.disk_states > 0 ? fmt::format("; {} of disk", format_nbytes(plan.disk_states)) : ""));
    }
  }
  throw Error("config shoal.placement",
              fmt::format("no placement fits: the GPU has {}, the host {}, and all on the GPU takes {} with {} of "
                          "activations. Give offload_optimizer.nvme_path for the disk, --recompute full, a smaller "
                          "micro-batch, stage 3 or more ranks.",
                          format_nbytes(room.device), format_nbytes(room.host),
                          format_nbytes(resident.total() + activations), format_nbytes(activations)));
}

}  // namespace shoal
