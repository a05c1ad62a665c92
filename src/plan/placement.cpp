// See placement.h.
#include "plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal {

namespace {

Placement planned(Placement placement, const Config& config, const PlanOf& plan_of) {
  placement.plan = plan_of(with(config, placement));
  return placement;
}

// The least share of states, in hundredths, that must leave the device; above 1: all of them are not enough.
double share_to_move(const Placement& all_moved, const Placement& none_moved, size_t device) {
  if (all_moved.plan.total() > device) return 2;
  const auto states = static_cast<double>(none_moved.plan.states - all_moved.plan.states);
  const auto stays = static_cast<double>(device - all_moved.plan.total());  // the ring counts, however little is moved
  return states > 0 ? std::ceil(std::max(0.0, 1 - stays / states) * 100) / 100 : 0;
}

// The least of 1 to `most` hundredths with which a placement fits; nothing where `most` do not either.
std::optional<Placement> least_that_fits(int most, const std::function<Placement(int)>& at,
                                         const std::function<bool(const Placement&)>& fits) {
  int too_few = 0, enough = most;
  Placement least = at(enough);
  if (!fits(least)) return std::nullopt;
  while (enough - too_few > 1) {
    const int middle = (too_few + enough) / 2;
    const Placement placement = at(middle);
    (fits(placement) ? enough : too_few) = middle;
    if (enough == middle) least = placement;
  }
  return least;
}

// Of a placement whose states are too many for the host: the least share of them, in hundredths, on disk.
std::optional<Placement> with_disk(Placement placement, const Room& room, size_t device, const Config& config,
                                   const PlanOf& plan_of) {
  placement.optimizer = Tier::disk;
  const auto mixed_at = [&](int hundredths) {
    placement.disk_ratio = hundredths / 100.0;
    return planned(placement, config, plan_of);
  };
  const auto fits = [&](const Placement& mixed) {
    return mixed.plan.host_total() <= room.host && mixed.plan.total() <= device;
  };
  return least_that_fits(static_cast<int>(std::lround(placement.ratio * 100)), mixed_at, fits);
}

// Of a placement that fits the device with none of its weights there: the least share of them, in hundredths, away.
Placement with_weights_on_device(Placement placement, size_t device, const Config& config, const PlanOf& plan_of) {
  const auto at = [&](int hundredths) {
    placement.param_ratio = hundredths / 100.0;
    return planned(placement, config, plan_of);
  };
  const auto fits = [&](const Placement& partly) { return partly.plan.total() <= device; };
  return least_that_fits(100, at, fits).value_or(placement);
}

// Of a placement that fits with all its weights on disk: the least share of them, in hundredths, there.
Placement with_weights_in_host(Placement placement, const Room& room, size_t device, const Config& config,
                               const PlanOf& plan_of) {
  const auto all = static_cast<int64_t>(placement.plan.disk_weights / nbytes_of(dtype_of(config.precision)));
  const auto at = [&](int hundredths) {
    placement.max_in_cpu = all / 100 * (100 - hundredths);
    return planned(placement, config, plan_of);
  };
  const auto fits = [&](const Placement& mixed) {
    return mixed.plan.host_total() <= room.host && mixed.plan.total() <= device;
  };
  return least_that_fits(100, at, fits).value_or(placement);
}

}  // namespace

Config with(const Config& config, const Placement& placement) {
  Config placed = config;
  placed.zero.offload_optimizer.tier = placement.ratio > 0 ? placement.optimizer : Tier::device;
  placed.zero.offload_optimizer.ratio = placement.ratio > 0 ? placement.ratio : 1;
  placed.zero.offload_param.tier = placement.param;
  placed.zero.offload_param.ratio = placement.param_ratio;
  if (placement.param == Tier::disk) placed.zero.offload_param.max_in_cpu = placement.max_in_cpu;
  placed.shoal.offload_disk_ratio = placement.disk_ratio;
  if (placement.gradients) {
    placed.shoal.offload_update = OffloadUpdate::host;
    placed.shoal.offload_gradients = OffloadGradients::on;
  }
  return placed;
}

std::string settings_of(const Placement& placement) {
  std::vector<std::string> parts;
  if (placement.optimizer != Tier::device && placement.ratio > 0) {
    std::string states = placement.optimizer == Tier::disk ? "offload_optimizer to nvme" : "offload_optimizer";
    if (placement.ratio < 1) states += fmt::format(", ratio {:.2f},", placement.ratio);
    if (placement.disk_ratio < placement.ratio) {
      states += fmt::format(" with shoal.offload_disk_ratio {:.2f}", placement.disk_ratio);
    }
    parts.push_back(std::move(states));
  }
  if (placement.gradients) parts.push_back("shoal.offload_gradients on with shoal.offload_update cpu");
  if (placement.param != Tier::device) {
    std::string weights = "offload_param";
    if (placement.param == Tier::disk) weights += fmt::format(" to nvme with max_in_cpu {}", placement.max_in_cpu);
    if (placement.param_ratio < 1) weights += fmt::format(", ratio {:.2f},", placement.param_ratio);
    parts.push_back(std::move(weights));
  }
  std::string text = join(parts, " and ");
  if (text.ends_with(',')) text.pop_back();
  return text;
}

std::string flags_of(const Config& config, const Placement& placement) {
  std::vector<std::string> settings = {"zero_optimization.stage=3"};
  if (config.shoal.auto_placement) settings.push_back("shoal.placement=config");
  const auto section = [&](const std::string& name, const OffloadConfig& written, Tier tier, double ratio) {
    const auto set = [&](const std::string& key) { settings.push_back("zero_optimization." + name + "." + key); };
    if (tier == Tier::device && written.tier == Tier::device) return;
    set(tier == Tier::device ? "device=none" : tier == Tier::host ? "device=cpu" : "device=nvme");
    if (tier == Tier::disk && written.nvme_path.empty()) set("nvme_path=<folder>");
    if (ratio < 1 || written.ratio != 1) set(fmt::format("ratio={:.2f}", ratio));
  };
  const Tier optimizer = placement.ratio > 0 ? placement.optimizer : Tier::device;
  const double ratio = optimizer == Tier::device ? 1 : placement.ratio;
  section("offload_optimizer", config.zero.offload_optimizer, optimizer, ratio);
  if (placement.disk_ratio < placement.ratio || config.shoal.offload_disk_ratio != 1) {
    settings.push_back(fmt::format("shoal.offload_disk_ratio={:.2f}", placement.disk_ratio));
  }
  if (placement.gradients) {
    settings.insert(settings.end(), {"shoal.offload_update=cpu", "shoal.offload_gradients=on"});
  }
  section("offload_param", config.zero.offload_param, placement.param, placement.param_ratio);
  if (placement.param == Tier::disk) {
    settings.push_back(fmt::format("zero_optimization.offload_param.max_in_cpu={}", placement.max_in_cpu));
  }
  return "--set " + join(settings, " --set ");
}

std::vector<Placement> placements_within(size_t device, const Config& config, const PlanOf& plan_of) {
  const bool may_move_gradients =
      config.shoal.offload_update != OffloadUpdate::device && config.shoal.offload_gradients != OffloadGradients::off;
  std::vector<Tier> tiers = {Tier::host};
  if (!config.zero.offload_optimizer.nvme_path.empty()) tiers.push_back(Tier::disk);
  std::vector<Placement> found;
  for (const Tier param : {Tier::device, Tier::host, Tier::disk}) {
    if (param != Tier::device && config.zero.stage < 3) continue;
    if (param == Tier::disk && config.zero.offload_param.nvme_path.empty()) continue;
    const auto take = [&](const Placement& placement) {
      if (placement.plan.total() > device) return;
      if (param == Tier::device) {
        found.push_back(placement);
        return;
      }
      Placement weights_stay = placement;
      weights_stay.param = Tier::device;
      if (planned(weights_stay, config, plan_of).plan.total() <= device) return;  // one with no weights away is there
      found.push_back(with_weights_on_device(placement, device, config, plan_of));
    };
    const Placement resident = planned({.param = param}, config, plan_of);
    take(resident);
    if (resident.plan.total() <= device) continue;
    for (const Tier tier : tiers) {
      const Placement all = planned({.optimizer = tier, .param = param}, config, plan_of);
      const double share = param == Tier::device ? share_to_move(all, resident, device) : 1;
      if (share <= 0 || share > 1 || all.plan.states == resident.plan.states) continue;
      take(planned({.optimizer = tier, .ratio = share, .param = param}, config, plan_of));
    }
    for (const Tier tier : tiers) {
      if (!may_move_gradients) continue;
      const Placement all = planned({.optimizer = tier, .gradients = true, .param = param}, config, plan_of);
      if (all.plan.host_gradients > 0) take(all);
    }
  }
  return found;
}

std::optional<Placement> find_place(const Room& room, size_t activations, const Config& config, const PlanOf& plan_of) {
  const size_t device = room.device > activations ? room.device - activations : 0;
  const std::vector<Placement> found = placements_within(device, config, plan_of);
  for (const Placement& placement : found) {  // the disk is the slowest by far, so all else comes first
    const size_t host = placement.plan.host_total();
    if (!placement.uses_disk() && (host <= room.host || host == 0)) return placement;
  }
  for (const Placement& placement : found) {
    if (placement.uses_disk() && placement.plan.host_total() <= room.host) {
      return placement.param == Tier::disk ? with_weights_in_host(placement, room, device, config, plan_of) : placement;
    }
    if (placement.optimizer != Tier::host || config.zero.offload_optimizer.nvme_path.empty()) continue;
    if (const auto mixed = with_disk(placement, room, device, config, plan_of)) return mixed;
  }
  return std::nullopt;
}

Placement place(const Room& room, size_t activations, const Config& config, const PlanOf& plan_of) {
  if (const auto found = find_place(room, activations, config, plan_of)) return *found;
  std::vector<std::string> remedies;
  if (config.zero.offload_optimizer.nvme_path.empty()) remedies.push_back("offload_optimizer.nvme_path for the disk");
  if (config.zero.stage < 3) remedies.push_back("stage 3");
  if (config.zero.stage == 3 && config.zero.offload_param.nvme_path.empty()) {
    remedies.push_back("offload_param.nvme_path for weights on disk");
  }
  remedies.insert(remedies.end(), {"fewer activations (--recompute full, activation_checkpointing.cpu_checkpointing, a "
                                   "smaller micro-batch)",
                                   "more ranks"});
  throw Error("config shoal.placement",
              fmt::format("no placement fits: the GPU has {}, the host {}, and all on the GPU takes {} with {} of "
                          "activations. What may help: {}.",
                          format_nbytes(room.device), format_nbytes(room.host),
                          format_nbytes(plan_of(with(config, {})).total() + activations), format_nbytes(activations),
                          join(remedies, ", ")));
}

// What is planned as the ring may have slots for weights in it, which are not of its size: what they add too much goes.
Config with_ring_within(size_t device, const Config& config, const PlanOf& plan_of) {
  Config whole = config;
  const MemoryPlan plan = plan_of(config);
  if (plan.state_ring == 0 || config.shoal.offload_ring_size != 0 || device <= plan.total()) return whole;
  whole.shoal.offload_ring_size = static_cast<int64_t>(plan.state_ring + (device - plan.total()));
  const size_t filled = plan_of(whole).total();
  if (filled > device) whole.shoal.offload_ring_size -= static_cast<int64_t>(filled - device);
  return whole;
}

Placement place_without_gpu(size_t host, size_t activations, const Config& config, const PlanOf& plan_of) {
  const auto at = [&](int hundredths) {
    return planned({.optimizer = hundredths > 0 ? Tier::disk : Tier::device,
                    .ratio = hundredths / 100.0,
                    .param = config.zero.offload_param.tier,
                    .param_ratio = config.zero.offload_param.ratio,
                    .max_in_cpu = config.zero.offload_param.max_in_cpu},
                   config, plan_of);
  };
  const auto taken = [&](const Placement& placement) {
    return placement.plan.total() + placement.plan.host_total() + activations;
  };
  const auto fits = [&](const Placement& placement) { return taken(placement) <= host; };
  const Placement resident = at(0);
  if (fits(resident)) return resident;
  const bool has_disk = !config.zero.offload_optimizer.nvme_path.empty();
  if (has_disk) {
    if (const auto least = least_that_fits(100, at, fits)) return *least;
  }
  throw Error("config shoal.placement",
              fmt::format("no placement fits: a rank may take {} of the host, and takes {} with {} of activations{}. "
                          "What may help: {}{}fewer activations (--recompute full, a smaller micro-batch), more hosts.",
                          format_nbytes(host), format_nbytes(taken(resident)), format_nbytes(activations),
                          has_disk ? fmt::format(", {} with its states on disk", format_nbytes(taken(at(100)))) : "",
                          has_disk ? "" : "offload_optimizer.nvme_path for the disk, ",
                          config.zero.stage < 3 ? "a higher ZeRO stage, " : ""));
}

}  // namespace shoal
