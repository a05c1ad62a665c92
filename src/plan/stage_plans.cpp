// See stage_plans.h.
#include "plan/stage_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {

int64_t PlanSubject::numel() const {
  int64_t numel = 0;
  for (const UnitSpec& unit : units) {
    for (const ParamSpec& param : unit.params) numel += param.numel();
  }
  return numel;
}

int64_t PlanSubject::trained_numel() const {
  int64_t numel = 0;
  for (const UnitSpec& unit : units) {
    for (const ParamSpec& param : unit.params) numel += param.trainable ? param.numel() : 0;
  }
  return numel;
}

PlanSubject subject_of_count(int64_t numel, Precision precision) {
  ParamSpec param{.name = "all", .shape = {numel}};
  param.dtype = dtype_of(precision);
  PlanSubject subject;
  subject.name = "any model";
  subject.units = {{.name = "all", .params = {param}, .borrows = {}}};
  subject.count_only = true;
  return subject;
}

namespace {

// One unit stands for many, which are not placed as it is: the device and the host keep as much as they may.
void place_counted_shards(MemoryPlan& plan, const ModelLayout& layout, const ShardOptions& options) {
  const UnitShards all = place_shards(layout, options)[0];
  if (options.tier == Tier::device || all.nbytes == 0) return;
  switch (all.tier) {
    case Tier::device: plan.weights -= all.nbytes; break;
    case Tier::host: plan.host_weights -= all.nbytes; break;
    case Tier::disk:
      plan.disk_weights -= in_pages(all.nbytes);
      plan.disk_buffers -= in_pages(all.nbytes);
      break;
  }
  const size_t element = nbytes_of(layout.units[0].flats[0].dtype);
  size_t left = all.nbytes / element;
  const auto take = [&](size_t most) {
    const size_t numel = std::min(left, most);
    left -= numel;
    return numel * element;
  };
  const auto of_device = static_cast<size_t>(static_cast<double>(left) * (1 - options.ratio));
  plan.weights += take(of_device);
  plan.host_weights += take(options.tier == Tier::disk ? static_cast<size_t>(options.max_in_host) : left);
  plan.disk_weights += in_pages(take(left));
}

}  // namespace

StagePlan plan_stage(const PlanSubject& subject, const Config& config, int world, bool on_gpu) {
  LayoutOptions options = layout_options(config, world);
  if (subject.count_only) options.persistence_threshold = 0;  // one stands for many, so its own size says nothing
  StagePlan plan;
  plan.stage = config.zero.stage;
  const ModelLayout layout = lay_out(subject.units, options);
  plan.memory = plan_memory(layout, memory_options(config, on_gpu));
  if (subject.count_only) {
    plan.memory.gather_arena = plan.memory.reduce_slots = 0;
    place_counted_shards(plan.memory, layout, shard_options(config));
  }
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      const auto nbytes = static_cast<size_t>(weight_numel(flat, stage_of(config))) * nbytes_of(flat.dtype);
      (flat.trainable ? plan.trained_weights : plan.frozen_weights) += nbytes;
    }
  }
  plan.activations = subject.activations;
  plan.host_activations = subject.host_activations;
  return plan;
}

std::array<StagePlan, kStages> plan_stages(const PlanSubject& subject, const Config& config, int world, bool on_gpu) {
  std::array<StagePlan, kStages> plans;
  for (int stage = 0; stage < kStages; ++stage) {
    Config staged = config;
    staged.zero.stage = stage;
    plans[static_cast<size_t>(stage)] = plan_stage(subject, staged, world, on_gpu);
  }
  return plans;
}

double classic_nbytes(int64_t trained, int stage, int world, int64_t frozen) {
  constexpr double kWeight = 2, kGradient = 2, kStates = 12;
  const StageRow row = Stage(stage).row;
  const auto share = [&](double nbytes, Over over) { return over == Over::nobody ? nbytes : nbytes / world; };
  const double weight = share(kWeight, row.weights);
  return static_cast<double>(trained) * (weight + share(kGradient, row.gradients) + share(kStates, row.states)) +
         static_cast<double>(frozen) * weight;
}

}  // namespace shoal
