// See auto_placement.h.
#include "engine/auto_placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "comm/group/full_group.h"
#include "engine/blueprint.h"
#include "engine/room.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/placement.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// What was decided, and what it takes of the memory that a rank computes in, with activations where they are known.
std::string words_of(const Placement& placement, const Room& room, size_t activations, bool on_gpu) {
  const std::string settings = settings_of(placement);
  const MemoryPlan& plan = placement.plan;
  const size_t taken = plan.total() + activations + (on_gpu ? 0 : plan.host_total());
  std::string text =
      fmt::format("placement auto: {}; {} of the {}{}, of {}",
                  settings.empty() ? (on_gpu ? "everything is on the GPU" : "everything is in memory") : settings,
                  format_nbytes(taken), on_gpu ? "GPU" : "host", activations > 0 ? " with activations" : "",
                  format_nbytes(on_gpu ? room.device : room.host));
  if (on_gpu && plan.host_total() > 0) {
    text += fmt::format("; {} of the host, of {}", format_nbytes(plan.host_total()), format_nbytes(room.host));
  }
  if (plan.disk_total() > 0) text += fmt::format("; {} of disk", format_nbytes(plan.disk_total()));
  return text;
}

}  // namespace

PlacedConfig carry_out_placement(const Config& config, const ModelLayout& layout, const ActivationRoom& activations,
                                 Group& world, at::Device device) {
  if (!config.shoal.auto_placement) return {config, {}, ""};
  Config asked = config;
  asked.shoal.auto_placement = false;
  const Room room = room_of_ranks(asked, world, device);
  const auto plan_of = [&](const Config& placed) {
    return plan_memory(layout, memory_options(placed, device.is_cuda()));
  };
  if (!device.is_cuda()) {
    const size_t needed = activations.device + activations.host;
    const Placement placement = place_without_gpu(room.host, needed, asked, plan_of);
    return {with(asked, placement), placement.plan, words_of(placement, room, needed, false)};
  }
  const Room beside = {room.device, room.host - std::min(room.host, activations.host)};
  const Placement placement = place(beside, activations.device, asked, plan_of);
  return {with(asked, placement), placement.plan, words_of(placement, beside, activations.device, true)};
}

PlacedConfig carry_out_placement(const Config& given, const std::vector<Unit>& units, size_t groups, Group& world,
                                 at::Device device) {
  const Config config = with_hosts(given, full(world).hosts());
  if (!config.shoal.auto_placement) return {config, {}, ""};
  const char* budget = device.is_cuda() ? "device_budget" : "host_budget";
  if ((device.is_cuda() ? config.shoal.device_budget : config.shoal.host_budget) == 0) {
    throw Error("config shoal.placement",
                fmt::format("\"auto\" needs shoal.{} here, the bytes that model states may take: only `shoal train` "
                            "knows the model's activations. Give it, or write the offload sections; `shoal plan` "
                            "proposes them.",
                            budget));
  }
  const ModelLayout layout = layout_of(units, config, world.size(), groups);
  PlacedConfig placed = carry_out_placement(config, layout, {}, world, device);
  const auto device_budget = static_cast<size_t>(config.shoal.device_budget);
  const auto plan_of = [&](const Config& each) { return plan_memory(layout, memory_options(each, true)); };
  if (device.is_cuda()) placed.config = with_ring_within(device_budget, placed.config, plan_of);
  return placed;
}

}  // namespace shoal
