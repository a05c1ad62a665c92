// See fit.h.
#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "plan/headroom.h"
#include "plan/placement.h"

namespace shoal {

namespace {

// The first count of ranks, of the powers of two, at which stage 3 over all of them fits without offload; 0: none.
int ranks_that_fit(const PlanSubject& subject, const Config& config, const Budget& budget, int world) {
  constexpr int kMostRanks = 1 << 16;
  Config resident = with(config, {});
  resident.zero.stage = 3;
  resident.zero.mics_shard_size = -1;
  resident.zero.hpz_partition_size = 1;
  resident.shoal.shard_size = 0;
  int ranks = 1;
  while (ranks <= world) ranks *= 2;
  for (; ranks <= kMostRanks; ranks *= 2) {
    if (fits(plan_stage(subject, resident, ranks, budget.device.has_value()), budget)) return ranks;
  }
  return 0;
}

constexpr const char* kDiskTooSmall =
    "States and weights on disk would not fit either: gradients, buffers and activations remain.";

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

// What a stage takes where the budget is.
std::string need(const StagePlan& plan, const Budget& budget) {
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  if (budget.device) {
    const size_t host = plan.host_total() * ranks;
    return fmt::format(
        "{} a rank{}", format_nbytes(plan.total()),
        host > 0 ? fmt::format(" and {} of host memory for {}", format_nbytes(host), ranks_text(budget.ranks_per_host))
                 : "");
  }
  const std::string disk = plan.memory.disk_total() > 0
                               ? fmt::format(" (and {} of disk)", format_nbytes(plan.memory.disk_total() * ranks))
                               : "";
  return fmt::format("{} a rank{}, {} a host with {}", format_nbytes(plan.total_on_host()), disk,
                     format_nbytes(plan.total_on_host() * ranks), ranks_text(budget.ranks_per_host));
}

// Behind what is needed: "; 77.6 GiB of a GPU's 80 GiB may be taken", or without a whole ", 77.6 GiB a GPU".
std::string room(const Budget& budget) {
  const HostMemory& whole = budget.whole;
  if (whole.gpu || whole.host) {
    std::vector<std::string> parts;
    const auto add = [&](const char* of, const std::optional<size_t>& usable, const std::optional<size_t>& all) {
      if (usable && all)
        parts.push_back(fmt::format("{} of a {}'s {}", format_nbytes(*usable), of, format_nbytes(*all)));
    };
    add("GPU", budget.device, whole.gpu);
    add("host", budget.host, whole.host);
    return fmt::format("; {} may be taken", join(parts, " and "));
  }
  if (!budget.device) return fmt::format(", which has {}", format_nbytes(*budget.host));
  return fmt::format(", {} a GPU{}", format_nbytes(*budget.device),
                     budget.host ? fmt::format(" and {} a host", format_nbytes(*budget.host)) : "");
}

// Stage 3 with other activations than asked for, or, without flags, as asked for.
struct Attempt {
  std::string flags;
  size_t activations = 0;
  size_t host_activations = 0;
  bool smaller_batch = false;
};
std::vector<Attempt> attempts_of(const PlanSubject& subject) {
  std::vector<Attempt> attempts = {{"", subject.activations, subject.host_activations}};
  for (const LighterWork& work : subject.lighter) {
    attempts.push_back({work.flags, work.activations, work.host_activations, work.smaller_batch});
  }
  return attempts;
}

std::string offload_line(const OffloadPlan& plan, const std::string& flags, const Budget& budget) {
  return fmt::format("Stage 3 with {}{} {}: {} a GPU, {} of host memory for {}{}.", plan.settings,
                     flags.empty() ? "" : " and " + flags,
                     fits(plan, budget) ? "would fit" : "would fit the GPU, not the host", format_nbytes(plan.device),
                     format_nbytes(plan.host), ranks_text(budget.ranks_per_host),
                     budget.host ? fmt::format(" of {}", format_nbytes(*budget.host)) : "");
}

// A sentence about what would fit, and the words for the command line that ask for it; none where it would not.
struct Remedy {
  std::string line;
  std::optional<std::string> words;
  bool smaller_batch = false;
};

std::string words_of(const std::string& placement, const Attempt& attempt) {
  return placement + (placement.empty() || attempt.flags.empty() ? "" : " ") + attempt.flags;
}

// Where GPU and host together are too small: states on disk, as few as must be, with as many activations as can be; or
// weights too. Nothing where that would not fit either.
std::optional<Remedy> disk_remedy(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  if (!budget.host) return std::nullopt;
  Config stage3 = config;
  stage3.zero.stage = 3;
  stage3.zero.offload_optimizer.nvme_path = "a disk";
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  const size_t host = *budget.host / ranks;
  for (const bool weights_too : {false, true}) {
    stage3.zero.offload_param.nvme_path = weights_too ? "a disk" : "";
    for (const Attempt& attempt : attempts_of(subject)) {
      const Room room{*budget.device, host - std::min(host, attempt.host_activations)};
      const auto placement = find_place(room, attempt.activations, stage3, [&](const Config& placed) {
        return plan_stage(subject, placed, world, true).memory;
      });
      if (!placement || placement->plan.disk_total() == 0) continue;
      const std::string line =
          fmt::format("Stage 3 with {}{} would fit: {} a GPU, {} of host memory and {} of disk for {}.",
                      settings_of(*placement), attempt.flags.empty() ? "" : " and " + attempt.flags,
                      format_nbytes(placement->plan.total() + attempt.activations),
                      format_nbytes((placement->plan.host_total() + attempt.host_activations) * ranks),
                      format_nbytes(placement->plan.disk_total() * ranks), ranks_text(budget.ranks_per_host));
      return Remedy{line, words_of(flags_of(config, *placement), attempt)};
    }
  }
  return std::nullopt;
}

// The first offload that fits, where states leave before gradients and those before weights, and with each of them
// activations are as many as can be: a step with fewer of them, or with them in host memory, takes less time than one
// that waits for the host's update, or for weights in every pass. A smaller micro-batch comes last of all. If the host
// is always too small, the first that fits the GPU, and what the disk could do. Where lighter work fits without any of
// it, only an offload that fits too is worth a word.
std::vector<Remedy> offload_remedies(const PlanSubject& subject, const Config& config, int world, const Budget& budget,
                                     bool fits_without) {
  std::vector<std::pair<Attempt, OffloadPlan>> candidates;
  for (const Attempt& attempt : attempts_of(subject)) {
    PlanSubject lighter = subject;
    lighter.activations = attempt.activations;
    lighter.host_activations = attempt.host_activations;
    for (OffloadPlan& plan : offload_plans(lighter, config, world, budget)) {
      candidates.emplace_back(attempt, std::move(plan));
    }
  }
  const auto cost = [](const std::pair<Attempt, OffloadPlan>& candidate) {
    return std::pair(candidate.first.smaller_batch, candidate.second.leaves);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const auto& left, const auto& right) { return cost(left) < cost(right); });
  std::string of_gpu_alone;
  for (const auto& [attempt, plan] : candidates) {
    const std::string line = offload_line(plan, attempt.flags, budget);
    if (fits(plan, budget)) return {{line, words_of(plan.flags, attempt)}};
    if (of_gpu_alone.empty()) of_gpu_alone = line;
  }
  if (fits_without) return {};
  if (of_gpu_alone.empty())
    return {{"Offload of every state would not fit either: gathered units and activations remain.", {}}};
  std::vector<Remedy> remedies = {{of_gpu_alone, {}}};
  if (const auto of_disk = disk_remedy(subject, config, world, budget)) {
    remedies.push_back(*of_disk);
  } else if (budget.host) {
    remedies.push_back({kDiskTooSmall, {}});
  }
  return remedies;
}

// Stage 3 so planned, with as many activations as can be; nothing where it would not fit. `settings` say in the
// sentence what `words` say on the command line.
std::optional<Remedy> stage3_remedy(const std::string& settings, const std::string& words, StagePlan plan,
                                    const PlanSubject& subject, const Budget& budget) {
  for (const Attempt& attempt : attempts_of(subject)) {
    plan.activations = attempt.activations;
    plan.host_activations = attempt.host_activations;
    if (!fits(plan, budget)) continue;
    const std::string line =
        fmt::format("Stage 3 with {}{}{} would fit: {}.", settings,
                    settings.empty() || attempt.flags.empty() ? "" : " and ", attempt.flags, need(plan, budget));
    return Remedy{line, words_of(words, attempt), attempt.smaller_batch};
  }
  return std::nullopt;
}

// Without a GPU: stage 3 with the optimizer's states on disk, or weights too; nothing where neither would fit.
std::optional<Remedy> disk_remedy_without_gpu(const PlanSubject& subject, const Config& config, int world,
                                              const Budget& budget) {
  Placement on_disk{.optimizer = Tier::disk};
  std::string settings = "offload_optimizer.device=nvme";
  for (const bool weights_too : {false, true}) {
    if (weights_too) {
      on_disk.param = Tier::disk;
      settings += " and offload_param.device=nvme with max_in_cpu=0";
    }
    Config placed = config;
    placed.zero.offload_optimizer.tier = Tier::disk;
    placed.zero.offload_optimizer.ratio = 1;
    if (weights_too) {
      placed.zero.offload_param.tier = Tier::disk;
      placed.zero.offload_param.ratio = 1;
      placed.zero.offload_param.max_in_cpu = 0;
    }
    const StagePlan plan = plan_stages(subject, placed, world)[3];
    if (auto remedy = stage3_remedy(settings, flags_of(config, on_disk), plan, subject, budget)) return remedy;
  }
  return std::nullopt;
}

}  // namespace

Budget budget_of(const HostMemory& memory) {
  Budget budget{.device = {}, .host = {}, .ranks_per_host = memory.ranks_per_host, .whole = memory};
  if (memory.gpu) budget.device = usable_of_gpu(*memory.gpu);
  if (memory.host) budget.host = usable_of_host(*memory.host);
  return budget;
}

bool chosen_fits(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  return fits(plan_stage(subject, config, world, budget.device.has_value()), budget);
}

bool fits(const StagePlan& plan, const Budget& budget) {
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  if (!budget.device) return !budget.host || plan.total_on_host() * ranks <= *budget.host;
  return plan.total() <= *budget.device && (!budget.host || plan.host_total() * ranks <= *budget.host);
}

std::vector<OffloadPlan> offload_plans(const PlanSubject& subject, const Config& config, int world,
                                       const Budget& budget) {
  Config stage3 = config;
  stage3.zero.stage = 3;
  const auto ranks = static_cast<size_t>(budget.ranks_per_host);
  const auto plan_of = [&](const Config& placed) { return plan_stage(subject, placed, world, true).memory; };
  std::vector<OffloadPlan> plans;
  if (*budget.device < subject.activations) return plans;
  const size_t room = *budget.device - subject.activations;
  for (const Placement& placement : placements_within(room, stage3, plan_of)) {
    const std::string settings = settings_of(placement);
    if (settings.empty() || placement.uses_disk()) continue;
    const auto leaves = placement.param != Tier::device ? OffloadPlan::Leaves::weights
                        : placement.gradients           ? OffloadPlan::Leaves::gradients
                                                        : OffloadPlan::Leaves::states;
    plans.push_back({settings, flags_of(config, placement), leaves, placement.plan.total() + subject.activations,
                     (placement.plan.host_total() + subject.host_activations) * ranks});
  }
  return plans;
}

bool fits(const OffloadPlan& plan, const Budget& budget) {
  return (!budget.device || plan.device <= *budget.device) && (!budget.host || plan.host <= *budget.host);
}

Advice advise(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  if (!budget.given()) return {.lines = {}, .words = ""};
  const auto plans = plan_stages(subject, config, world, budget.device.has_value());
  const StagePlan& chosen = plans[static_cast<size_t>(config.zero.stage)];
  Advice advice;
  std::vector<std::string>& lines = advice.lines;
  const std::string numbers = need(chosen, budget) + room(budget);
  if (fits(chosen, budget)) {
    lines.push_back(fmt::format("Stage {} fits: {}.", chosen.stage, numbers));
    if (subject.count_only) lines.push_back("Gathered units, buffers and activations are not counted: give --model.");
    advice.words = "";
    return advice;
  }
  lines.push_back(fmt::format("Stage {} does not fit: {}.", chosen.stage, numbers));
  for (const StagePlan& plan : plans) {
    if (plan.stage <= chosen.stage || !fits(plan, budget)) continue;
    const std::string setting = fmt::format("zero_optimization.stage={}", plan.stage);
    lines.push_back(fmt::format("{} would fit: {}.", setting, need(plan, budget)));
    advice.words = "--set " + setting;
    return advice;
  }
  if (chosen.stage < 3) {
    lines.push_back(fmt::format("No stage fits; stage 3 takes {} a rank.", format_nbytes(plans[3].total())));
  }
  const auto lighter = stage3_remedy("", "--set zero_optimization.stage=3", plans[3], subject, budget);
  std::vector<Remedy> remedies;
  if (lighter) remedies.push_back(*lighter);
  if (budget.device) {
    for (Remedy& remedy : offload_remedies(subject, config, world, budget, lighter.has_value())) {
      remedies.push_back(std::move(remedy));
    }
  } else {
    PlanSubject asked = subject;
    if (lighter) asked.lighter.clear();  // they do without the disk
    if (auto remedy = disk_remedy_without_gpu(asked, config, world, budget)) {
      remedies.push_back(std::move(*remedy));
    } else if (!lighter) {
      remedies.push_back({kDiskTooSmall, {}});
    }
  }
  for (const Remedy& remedy : remedies) lines.push_back(remedy.line);
  // The first that would fit, a smaller micro-batch last of all.
  std::stable_partition(remedies.begin(), remedies.end(), [](const Remedy& remedy) { return !remedy.smaller_batch; });
  for (const Remedy& remedy : remedies) {
    if (!advice.words) advice.words = remedy.words;
  }
  if (const int ranks = ranks_that_fit(subject, config, budget, world); ranks > 0) {
    lines.push_back(budget.device
                        ? fmt::format("Without offload stage 3 fits on {} ranks.", ranks)
                        : fmt::format("Stage 3 fits on {}, {} a host.", ranks_text(ranks), budget.ranks_per_host));
  }
  return advice;
}

}  // namespace shoal
