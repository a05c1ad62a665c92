// See out_of_memory.h.
#include "engine/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/placement.h"

namespace shoal {

namespace {

// Torch's message goes on with advice of its own and a stack: its first sentences say how much was asked for.
std::string first_sentences(const std::string& text) {
  size_t end = text.find('\n');
  if (end == std::string::npos) end = text.size();
  const size_t advice = text.find(" If reserved but unallocated");
  return text.substr(0, std::min(end, advice));
}

std::string states_text(const MemoryPlan& plan) {
  return fmt::format(
             "weights {}, gradients {}, optimizer states {}, gathered units {}, gradients on the way {}, "
             "states on the way {}",
             format_nbytes(plan.weights), format_nbytes(plan.gradients), format_nbytes(plan.states),
             format_nbytes(plan.gather_arena), format_nbytes(plan.reduce_slots), format_nbytes(plan.state_ring)) +
         (plan.second_weights > 0 ? ", second copy of weights " + format_nbytes(plan.second_weights) : "");
}

std::string more_ranks(int world) { return world > 1 ? "more ranks" : "more GPUs with ZeRO stage 3"; }

}  // namespace

Error explain(const OutOfMemory& event) {
  std::vector<std::string> remedies;
  if (event.micro_batch > 1) {
    remedies.push_back(fmt::format("a micro-batch below {} with more gradient_accumulation_steps", event.micro_batch));
  }
  remedies.push_back(
      "recompute of activations (--recompute auto or full, or Engine::recompute), with their inputs in host memory "
      "(activation_checkpointing.cpu_checkpointing)");
  if (event.world > 1 && event.stage < 3) {
    remedies.push_back(fmt::format("a zero_optimization.stage above {}", event.stage));
  }
  if (event.memory.held.state_ring > event.memory.planned.state_ring) {
    remedies.push_back(fmt::format("a shoal.offload_ring_size below {}, to which the ring of states has grown",
                                   format_nbytes(event.memory.held.state_ring)));
  }
  if (event.memory.held.host_states + event.memory.held.disk_states == 0) {
    remedies.push_back("optimizer states in host memory (offload_optimizer)");
  }
  remedies.push_back(more_ranks(event.world));
  return Error(
      fmt::format("GPU memory, {} of unit {}", event.phase, event.unit),
      fmt::format("{} Of the GPU's {}, {} hold model states ({}); the rest was left for activations. "
                  "What makes it fit: {}. `shoal plan` counts before a run does.",
                  first_sentences(event.said), format_nbytes(event.device_nbytes),
                  format_nbytes(event.memory.held.total()), states_text(event.memory.held), join(remedies, "; ")));
}

NoRoom no_room(const WantedEngine& wanted, const std::string& said, const cuda::DeviceFacts& gpu) {
  const Config& config = wanted.config;
  NoRoom event;
  event.said = said;
  event.free_nbytes = gpu.free_nbytes;
  event.device_nbytes = gpu.total_nbytes;
  event.world = wanted.world;
  const ModelLayout layout = layout_of(wanted.units, config, wanted.world, wanted.groups);
  const auto plan_of = [&](const Config& placed) {
    return plan_memory(layout, memory_options(placed, /*on_gpu=*/true));
  };
  event.planned = plan_of(config);
  for (const Placement& placement : placements_within(gpu.free_nbytes, config, plan_of)) {
    if (std::string settings = settings_of(placement); !settings.empty()) event.settings.push_back(std::move(settings));
  }
  return event;
}

Error explain(const NoRoom& event) {
  std::vector<std::string> remedies = event.settings;
  remedies.push_back(more_ranks(event.world));
  return Error(
      "GPU memory, building the engine",
      fmt::format("{} Model states take {} by plan ({}), and {} of the GPU's {} are free. What would fit, "
                  "activations not counted: {}. `shoal plan` counts before a run does.",
                  first_sentences(event.said), format_nbytes(event.planned.total()), states_text(event.planned),
                  format_nbytes(event.free_nbytes), format_nbytes(event.device_nbytes), join(remedies, "; ")));
}

}  // namespace shoal
