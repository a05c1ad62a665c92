// See out_of_memory.h.
#include "engine/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace shoal {

namespace {

// Torch's message goes on with advice of its own and a stack: its first sentences say how much was asked for.
std::string first_sentences(const std::string& text) {
  size_t end = text.find('\n');
  if (end == std::string::npos) end = text.size();
  const size_t advice = text.find(" If reserved but unallocated");
  return text.substr(0, std::min(end, advice));
}

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
  remedies.push_back(event.world > 1 ? "more ranks" : "more GPUs with ZeRO stage 3");
  return Error(
      fmt::format("GPU memory, {} of unit {}", event.phase, event.unit),
      fmt::format(
          "{} Of the GPU's {}, {} hold model states (weights {}, gradients {}, optimizer states "
          "{}, gathered units {}, gradients on the way {}, states on the way {}); the rest was left for activations. "
          "What makes it fit: {}. `shoal plan` counts before a run does.",
          first_sentences(event.said), format_nbytes(event.device_nbytes), format_nbytes(event.memory.held.total()),
          format_nbytes(event.memory.held.weights), format_nbytes(event.memory.held.gradients),
          format_nbytes(event.memory.held.states), format_nbytes(event.memory.held.gather_arena),
          format_nbytes(event.memory.held.reduce_slots), format_nbytes(event.memory.held.state_ring),
          join(remedies, "; ")));
}

}  // namespace shoal
