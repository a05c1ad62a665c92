// See fit.h.
#include "plan/fit.h"

#include <fmt/format.h>

#include "base/text.h"

namespace shoal {

namespace {

// The first count of ranks, of the powers of two, at which stage 3 fits without offload; 0: none.
int ranks_that_fit(const PlanSubject& subject, const Config& config, const Budget& budget, int world) {
  constexpr int kMostRanks = 1 << 16;
  int ranks = 1;
  while (ranks <= world) ranks *= 2;
  for (; ranks <= kMostRanks; ranks *= 2) {
    if (fits(plan_stages(subject, config, ranks)[3], budget)) return ranks;
  }
  return 0;
}

std::string room(const Budget& budget) {
  if (budget.device) return fmt::format("{} a GPU", format_nbytes(*budget.device));
  return fmt::format("{} a host with {} rank{}", format_nbytes(*budget.host), budget.ranks_per_host,
                     budget.ranks_per_host == 1 ? "" : "s");
}

}  // namespace

bool fits(const StagePlan& plan, const Budget& budget) {
  if (budget.device) return plan.total() <= *budget.device;
  return !budget.host || plan.total() * static_cast<size_t>(budget.ranks_per_host) <= *budget.host;
}

std::vector<OffloadPlan> offload_plans(const StagePlan& stage3, int ranks_per_host) {
  const auto ranks = static_cast<size_t>(ranks_per_host);
  const MemoryPlan& memory = stage3.memory;
  const size_t updated = memory.gradients + memory.states;
  return {{"offload_optimizer", stage3.total() - updated, updated * ranks},
          {"offload_optimizer and offload_param", stage3.total() - updated - memory.weights,
           (updated + memory.weights) * ranks}};
}

bool fits(const OffloadPlan& plan, const Budget& budget) {
  return (!budget.device || plan.device <= *budget.device) && (!budget.host || plan.host <= *budget.host);
}

std::vector<std::string> advice(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  if (!budget.given()) return {};
  const auto plans = plan_stages(subject, config, world);
  const StagePlan& chosen = plans[static_cast<size_t>(config.zero.stage)];
  std::vector<std::string> lines;
  const std::string need = format_nbytes(chosen.total());
  if (fits(chosen, budget)) {
    lines.push_back(fmt::format("Stage {} fits: {} a rank, {}.", chosen.stage, need, room(budget)));
    if (subject.count_only) lines.push_back("Gathered units, buffers and activations are not counted: give --model.");
    return lines;
  }
  lines.push_back(fmt::format("Stage {} does not fit: {} a rank, {}.", chosen.stage, need, room(budget)));
  bool found = false;
  for (const StagePlan& plan : plans) {
    if (plan.stage <= chosen.stage || !fits(plan, budget)) continue;
    lines.push_back(
        fmt::format("zero_optimization.stage={} would fit: {} a rank.", plan.stage, format_nbytes(plan.total())));
    found = true;
    break;
  }
  if (found) return lines;
  if (chosen.stage < 3) {
    lines.push_back(fmt::format("No stage fits; stage 3 takes {} a rank.", format_nbytes(plans[3].total())));
  }
  if (subject.activations > 0 && plans[3].memory.total() <= budget.device.value_or(0)) {
    lines.push_back("Without activations stage 3 would fit: take a smaller micro-batch, or --recompute full.");
  }
  if (budget.device) {
    for (const OffloadPlan& plan : offload_plans(plans[3], budget.ranks_per_host)) {
      if (plan.device > *budget.device) continue;
      const std::string host = format_nbytes(plan.host);
      lines.push_back(
          fmt::format("Stage 3 with {} (not in this version) {}: {} a GPU, {} of host memory for {} rank{}{}.",
                      plan.settings, fits(plan, budget) ? "would fit" : "would fit the GPU, not the host",
                      format_nbytes(plan.device), host, budget.ranks_per_host, budget.ranks_per_host == 1 ? "" : "s",
                      budget.host ? fmt::format(" of {}", format_nbytes(*budget.host)) : ""));
      found = true;
      if (fits(plan, budget)) break;
    }
    if (!found) lines.push_back("Offload of every state would not fit either: gathered units and activations remain.");
  }
  if (const int ranks = budget.device ? ranks_that_fit(subject, config, budget, world) : 0; ranks > 0) {
    lines.push_back(fmt::format("Without offload stage 3 fits on {} ranks.", ranks));
  }
  return lines;
}

}  // namespace shoal
