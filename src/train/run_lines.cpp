// See run_lines.h.
#include "train/run_lines.h"

#include <fmt/format.h>

#include "base/text.h"

namespace shoal::train {

namespace {

// "" where the optimizer is the same.
std::string optimizer_change(const LoadedCheckpoint& loaded, const std::string& own) {
  std::vector<std::string> unused;
  for (const StateKind kind : loaded.unused_states) unused.emplace_back(name_of(kind));
  const bool changed = !loaded.saved_optimizer.empty() && loaded.saved_optimizer != own;
  if (!changed && unused.empty()) return "";
  return fmt::format("it was made with {}, this run updates with {}: {}",
                     loaded.saved_optimizer.empty() ? "another optimizer" : loaded.saved_optimizer, own,
                     unused.empty() ? "the moments are taken over as they are" : "dropped " + join(unused, ", "));
}

std::string batch_change(int64_t step, const ResumeFacts& run) {
  if (run.samples == 0 || step == 0 || run.samples == step * run.batch) return "";
  return fmt::format("it took {:.6g} samples a step, this run takes {}: give train_batch_size for the same batch",
                     static_cast<double>(run.samples) / static_cast<double>(step), run.batch);
}

std::string threads_change(const LoadedCheckpoint& loaded, const ResumeFacts& run) {
  const auto saved = loaded.extra.find("threads");
  if (saved == loaded.extra.end()) return "";
  if (saved->second == std::to_string(run.threads)) return "";
  return fmt::format("it was made with {} threads a rank, not {}: the last bits of sums may differ", saved->second,
                     run.threads);
}

}  // namespace

std::vector<std::string> resume_lines(const LoadedCheckpoint& loaded, const ResumeFacts& run) {
  std::vector<std::string> lines = {fmt::format("resumed    {} at step {}, {} samples in, saved by {} {}", loaded.path,
                                                loaded.step, format_count(run.samples), loaded.saved_world,
                                                loaded.saved_world == 1 ? "rank" : "ranks")};
  for (const std::string& change :
       {optimizer_change(loaded, run.optimizer), batch_change(loaded.step, run), threads_change(loaded, run)}) {
    if (!change.empty()) lines.push_back(change);
  }
  return lines;
}

std::vector<std::string> gpu_memory_lines(const MemoryReport& memory, size_t peak, size_t planned) {
  const MemoryPlan& states = memory.held;
  std::vector<std::string> lines = {
      fmt::format("GPU memory {} at most: {} of model states{}; activations {}, planned {}",
                  format_nbytes(states.total() + peak), format_nbytes(states.total()),
                  states.state_ring > memory.planned.state_ring
                      ? fmt::format(", of which a ring of {} that has grown", format_nbytes(states.state_ring))
                      : ", as planned",
                  format_nbytes(peak), format_nbytes(planned))};
  if (memory.host_activations > 0) {
    lines.push_back(fmt::format("activations on the host: {}", format_nbytes(memory.host_activations)));
  }
  return lines;
}

std::vector<std::string> host_traffic_lines(const HostTraffic& host, int64_t steps, size_t ring_nbytes) {
  std::vector<std::string> lines;
  const auto divisor = static_cast<uint64_t>(steps);
  if (host.to_device_nbytes > 0) {
    lines.push_back(fmt::format("states of the host: {} to the GPU and {} back a step, through {} of its memory",
                                format_nbytes(host.to_device_nbytes / divisor),
                                format_nbytes(host.to_host_nbytes / divisor), format_nbytes(ring_nbytes)));
  }
  if (host.host_updated_numel > 0) {
    lines.push_back(fmt::format("the host updates {:.3g} billion parameters a step",
                                static_cast<double>(host.host_updated_numel) * 1e-9));
  }
  if (host.ahead_numel > 0) {
    const auto a_step = [&](int64_t numel) { return static_cast<double>(numel) * 1e-9 / static_cast<double>(steps); };
    lines.push_back(fmt::format("{:.3g} billion of them before the step was decided; {:.3g} billion a step held",
                                a_step(host.ahead_numel), a_step(host.taken_ahead_numel)));
  }
  return lines;
}

std::string why_it_ends(const NonfiniteSteps& steps) {
  const std::string why = steps.too_many()
                              ? fmt::format("So many in a row end a run (--max-nonfinite {}).", steps.most())
                              : "The run ended so, and that is not saved.";
  return fmt::format("{} {}", steps.describe(), why);
}

}  // namespace shoal::train
