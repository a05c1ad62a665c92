// See fit.h.
#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

// What a stage takes where the budget is.
std::string need(const StagePlan& plan, const Budget& budget) {
  if (budget.device) return fmt::format("{} a rank", format_nbytes(plan.total()));
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  const std::string disk = plan.memory.disk_states > 0
                               ? fmt::format(" (and {} of disk)", format_nbytes(plan.memory.disk_states * ranks))
                               : "";
  return fmt::format("{} a rank{}, {} a host with {}", format_nbytes(plan.total_on_host()), disk,
                     format_nbytes(plan.total_on_host() * ranks), ranks_text(budget.ranks_per_host));
}

std::string room(const Budget& budget) {
  return budget.device ? fmt::format("{} a GPU", format_nbytes(*budget.device))
                       : fmt::format("which has {}", format_nbytes(*budget.host));
}

// Stage 3 with other activations than asked for, or, without flags, as asked for.
struct Attempt {
  std::string flags;
  StagePlan plan;
};
std::vector<Attempt> attempts_of(const PlanSubject& subject, const StagePlan& stage3) {
  std::vector<Attempt> attempts = {{"", stage3}};
  for (const LighterWork& work : subject.lighter) {
    attempts.push_back({work.flags, stage3});
    attempts.back().plan.activations = work.activations;
  }
  return attempts;
}

std::string offload_line(const OffloadPlan& plan, const std::string& flags, const Budget& budget) {
  return fmt::format("Stage 3 with {}{}{} {}: {} a GPU, {} of host memory for {}{}.", plan.settings,
                     plan.carried_out ? "" : " (not in this version)", flags.empty() ? "" : " and " + flags,
                     fits(plan, budget) ? "would fit" : "would fit the GPU, not the host", format_nbytes(plan.device),
                     format_nbytes(plan.host), ranks_text(budget.ranks_per_host),
                     budget.host ? fmt::format(" of {}", format_nbytes(*budget.host)) : "");
}

// The states that the GPU has no room for, in hundredths of all, on the host.
OffloadPlan share_of_states(const StagePlan& stage3, const Budget& budget) {
  const auto states = static_cast<double>(stage3.memory.states);
  const double too_much = static_cast<double>(stage3.total()) - static_cast<double>(*budget.device);
  const double ratio = states > 0 ? std::ceil(too_much / states * 100) / 100 : 2;
  const auto moved = static_cast<size_t>(std::min(ratio, 1.0) * states);
  return {fmt::format("offload_optimizer, ratio {:.2f},", ratio), true, stage3.total() - moved,
          moved * static_cast<size_t>(budget.ranks_per_host)};
}

// The first offload that fits, with as many activations as can be; if the host is always too small, the first that fits
// the GPU.
std::string offload_advice(const std::vector<Attempt>& attempts, const Budget& budget) {
  std::string of_gpu_alone;
  for (const Attempt& attempt : attempts) {
    for (const OffloadPlan& plan : offload_plans(attempt.plan, budget.ranks_per_host)) {
      if (plan.device > *budget.device) continue;
      if (fits(plan, budget)) return offload_line(plan, attempt.flags, budget);
      if (of_gpu_alone.empty()) of_gpu_alone = offload_line(plan, attempt.flags, budget);
      const OffloadPlan share = share_of_states(attempt.plan, budget);
      if (fits(share, budget)) return offload_line(share, attempt.flags, budget);
    }
  }
  if (!of_gpu_alone.empty()) return of_gpu_alone;
  return "Offload of every state would not fit either: gathered units and activations remain.";
}

// Stage 3 with the optimizer's states on disk, if that would fit and is not what the config has.
std::string disk_advice(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  if (config.zero.offload_optimizer.tier == Tier::disk) return "";
  Config on_disk = config;
  on_disk.zero.offload_optimizer.tier = Tier::disk;
  on_disk.zero.offload_optimizer.ratio = 1;
  const StagePlan plan = plan_stages(subject, on_disk, world)[3];
  if (!fits(plan, budget)) return "";
  return fmt::format("Stage 3 with offload_optimizer.device=nvme would fit: {}.", need(plan, budget));
}

}  // namespace

bool fits(const StagePlan& plan, const Budget& budget) {
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  if (!budget.device) return !budget.host || plan.total_on_host() * ranks <= *budget.host;
  return plan.total() <= *budget.device && (!budget.host || plan.memory.host_total() * ranks <= *budget.host);
}

std::vector<OffloadPlan> offload_plans(const StagePlan& stage3, int ranks_per_host) {
  const auto ranks = static_cast<size_t>(ranks_per_host);
  const MemoryPlan& memory = stage3.memory;
  const size_t both = memory.states + memory.weights;
  const size_t all = both + memory.gradients;
  return {{"offload_optimizer", true, stage3.total() - memory.states, memory.states * ranks},
          {"offload_optimizer and offload_param", true, stage3.total() - both, both * ranks},
          {"offload_optimizer, offload_param and gradients on the host", false, stage3.total() - all, all * ranks}};
}

bool fits(const OffloadPlan& plan, const Budget& budget) {
  return (!budget.device || plan.device <= *budget.device) && (!budget.host || plan.host <= *budget.host);
}

std::vector<std::string> advice(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  if (!budget.given()) return {};
  const auto plans = plan_stages(subject, config, world);
  const StagePlan& chosen = plans[static_cast<size_t>(config.zero.stage)];
  std::vector<std::string> lines;
  const std::string numbers = fmt::format("{}, {}", need(chosen, budget), room(budget));
  if (fits(chosen, budget)) {
    lines.push_back(fmt::format("Stage {} fits: {}.", chosen.stage, numbers));
    if (subject.count_only) lines.push_back("Gathered units, buffers and activations are not counted: give --model.");
    return lines;
  }
  lines.push_back(fmt::format("Stage {} does not fit: {}.", chosen.stage, numbers));
  for (const StagePlan& plan : plans) {
    if (plan.stage <= chosen.stage || !fits(plan, budget)) continue;
    lines.push_back(fmt::format("zero_optimization.stage={} would fit: {}.", plan.stage, need(plan, budget)));
    return lines;
  }
  if (chosen.stage < 3) {
    lines.push_back(fmt::format("No stage fits; stage 3 takes {} a rank.", format_nbytes(plans[3].total())));
  }
  const std::vector<Attempt> attempts = attempts_of(subject, plans[3]);
  for (const Attempt& attempt : attempts) {
    if (!fits(attempt.plan, budget)) continue;
    lines.push_back(fmt::format("Stage 3 with {} would fit: {}.", attempt.flags, need(attempt.plan, budget)));
    break;
  }
  if (budget.device) {
    lines.push_back(offload_advice(attempts, budget));
  } else if (const std::string line = disk_advice(subject, config, world, budget); !line.empty()) {
    lines.push_back(line);
  }
  if (const int ranks = ranks_that_fit(subject, config, budget, world); ranks > 0) {
    lines.push_back(budget.device
                        ? fmt::format("Without offload stage 3 fits on {} ranks.", ranks)
                        : fmt::format("Stage 3 fits on {}, {} a host.", ranks_text(ranks), budget.ranks_per_host));
  }
  return lines;
}

}  // namespace shoal
