// See search.h.
#include "forecast/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/json.h"
#include "plan/headroom.h"
#include "plan/ring_layout.h"
#include "shoal/error.h"

namespace shoal::forecast {

namespace {

struct Choice {
  int stage = 3;
  Sharding sharding;
  bool ring_reduce = false;
  bool block_ahead = false;
  int64_t batch = 1;
  Recomputes recomputes = Recomputes::none;
};

// Groups worth a look: a host, and twice and four times as many; they must divide the world.
std::vector<int> group_sizes(const SearchQuestion& question) {
  std::vector<int> sizes;
  const int host = std::min(question.cluster.gpus_per_host, question.world);
  for (int size = host; size < question.world && sizes.size() < 4; size *= 2) {
    if (size > 1 && question.world % size == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<Sharding> shardings(const SearchQuestion& question, int stage) {
  std::vector<Sharding> all = {{}};
  if (stage == 0) return all;
  for (const int size : group_sizes(question)) all.push_back({Sharding::Kind::group, size});
  if (stage == 3) {
    for (const int size : group_sizes(question)) all.push_back({Sharding::Kind::second_copy, size});
  }
  return all;
}

// Micro-batches and how many of them make a step; nothing where they do not.
std::optional<int64_t> accumulation_for(const SearchQuestion& question, int64_t batch) {
  if (question.global_batch == 0) return question.config.batch.accumulation_steps;
  const int64_t micro_step = batch * question.world;
  if (question.global_batch % micro_step != 0) return std::nullopt;
  return question.global_batch / micro_step;
}

// What stage3_prefetch_bucket_size must be for a block to come ahead of its use, in whole millions; 0: it does as it
// is.
int64_t bucket_for_a_block(const SearchQuestion& question) {
  constexpr int64_t kMillion = 1'000'000;
  const int64_t matrices = std::max(question.shape.block_numel(), question.shape.most_numel);
  const int64_t block = matrices + 16 * question.shape.hidden;
  if (!question.config.zero.overlap_comm || block <= question.config.zero.prefetch_bucket_size) return 0;
  return (block / kMillion + 1) * kMillion;
}

Config config_of(const SearchQuestion& question, const Choice& choice, int64_t accumulation) {
  Config config = with_sharding(with(question.config, Placement{}), choice.sharding);
  config.zero.stage = choice.stage;
  config.batch.micro_batch_size = choice.batch;
  config.batch.accumulation_steps = accumulation;
  config.batch.train_batch_size = choice.batch * accumulation * question.world;
  config.shoal.auto_placement = false;
  if (choice.block_ahead) {
    config.zero.prefetch_bucket_size = bucket_for_a_block(question);
    config.zero.max_live_parameters = std::max(config.zero.max_live_parameters, 4 * config.zero.prefetch_bucket_size);
  }
  config.shoal.reduce = choice.ring_reduce ? Reduce::nccl : Reduce::exact;
  // A disk is there, whatever the config says, where the cluster has one.
  if (question.cluster.host.disk_read > 0 && question.cluster.host.disk_write > 0) {
    for (OffloadConfig* offload : {&config.zero.offload_optimizer, &config.zero.offload_param}) {
      if (offload->nvme_path.empty()) offload->nvme_path = "<folder>";
    }
  }
  return config;
}

json::Object offload_section(const OffloadConfig& offload) {
  json::Object section = {{"device", offload.tier == Tier::disk ? "nvme" : "cpu", {}}};
  if (offload.tier == Tier::disk) section.push_back({"nvme_path", offload.nvme_path, {}});
  if (offload.ratio < 1) section.push_back({"ratio", offload.ratio, {}});
  return section;
}

json::Object settings_of_choice(const Config& config, const Choice& choice) {
  json::Object zero = {{"stage", choice.stage, {}}};
  if (choice.sharding.kind == Sharding::Kind::group) zero.push_back({"mics_shard_size", choice.sharding.ranks, {}});
  if (choice.sharding.kind == Sharding::Kind::second_copy) {
    zero.push_back({"zero_hpz_partition_size", choice.sharding.ranks, {}});
  }
  if (choice.block_ahead) {
    zero.push_back({"stage3_prefetch_bucket_size", config.zero.prefetch_bucket_size, {}});
    zero.push_back({"stage3_max_live_parameters", config.zero.max_live_parameters, {}});
  }
  if (config.zero.offload_optimizer.tier != Tier::device) {
    zero.push_back({"offload_optimizer", offload_section(config.zero.offload_optimizer), {}});
  }
  if (config.zero.offload_param.tier != Tier::device) {
    json::Object section = offload_section(config.zero.offload_param);
    if (config.zero.offload_param.tier == Tier::disk) {
      section.push_back({"max_in_cpu", config.zero.offload_param.max_in_cpu, {}});
    }
    zero.push_back({"offload_param", std::move(section), {}});
  }
  json::Object root = {{"train_micro_batch_size_per_gpu", choice.batch, {}},
                       {"gradient_accumulation_steps", config.batch.accumulation_steps, {}},
                       {"zero_optimization", std::move(zero), {}}};
  if (config.precision == Precision::bf16) root.push_back({"bf16", json::Object{{"enabled", true, {}}}, {}});
  if (config.precision == Precision::fp16) root.push_back({"fp16", json::Object{{"enabled", true, {}}}, {}});
  if (config.fp8.enabled) root.push_back({"fp8", json::Object{{"enabled", true, {}}}, {}});
  json::Object shoal;
  if (choice.ring_reduce) shoal.push_back({"reduce", "nccl", {}});
  if (config.shoal.offload_update == OffloadUpdate::host) {
    shoal.push_back({"offload_update", "cpu", {}});
    shoal.push_back({"offload_gradients", "on", {}});
  }
  if (config.shoal.offload_disk_ratio < 1) shoal.push_back({"offload_disk_ratio", config.shoal.offload_disk_ratio, {}});
  if (!shoal.empty()) root.push_back({"shoal", std::move(shoal), {}});
  return root;
}

void merge(json::Value& into, const json::Object& members) {
  for (const json::Member& member : members) {
    json::Value* own = into.find(member.key);
    if (own != nullptr && own->is_object() && member.value.is_object()) {
      merge(*own, member.value.as_object());
    } else {
      into.set(member.key, member.value);
    }
  }
}

// The user's config with a choice in the place of what it says of the same.
json::Value settings_within(json::Value config, const json::Object& choice) {
  config.erase("train_batch_size");
  if (json::Value* zero = config.find("zero_optimization"); zero != nullptr && zero->is_object()) {
    for (const char* key : {"mics_shard_size", "mics_hierarchical_params_gather", "zero_hpz_partition_size"}) {
      zero->erase(key);
    }
    for (const char* key : {"offload_optimizer", "offload_param"}) {
      json::Value* offload = zero->find(key);
      if (offload == nullptr || !offload->is_object()) continue;
      for (const char* detail : {"ratio", "max_in_cpu"}) offload->erase(detail);
      offload->set("device", "none");
    }
  }
  if (json::Value* shoal = config.find("shoal"); shoal != nullptr && shoal->is_object()) {
    for (const char* key :
         {"shard_size", "placement", "reduce", "offload_update", "offload_gradients", "offload_disk_ratio"}) {
      shoal->erase(key);
    }
    if (shoal->as_object().empty()) config.erase("shoal");
  }
  merge(config, choice);
  return config;
}

class Searcher {
 public:
  Searcher(const SearchQuestion& question, const Calibration& calibration) : of_(question), by_(calibration) {
    device_ = usable_of_gpu(of_.cluster.gpu.memory);
    const auto ranks = static_cast<size_t>(ranks_of_host());
    host_ = usable_of_host(of_.cluster.host.memory) / ranks;
  }

  SearchAnswer answer() {
    for (const int stage : {3, 2, 1, 0}) {
      for (const Sharding& sharding : shardings(of_, stage)) {
        try_sharding(stage, sharding, false);
        if (stage == 3 && of_.world > 1 && bucket_for_a_block(of_) > 0) try_sharding(stage, sharding, true);
      }
    }
    // Offload is for what does not fit: with the micro-batch that fits without it needs none.
    if (answer_.candidates.empty()) try_offload();
    drop_what_is_there_twice();
    std::stable_sort(answer_.candidates.begin(), answer_.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.tokens() > b.tokens(); });
    return std::move(answer_);
  }

 private:
  int ranks_of_host() const { return std::min(of_.cluster.gpus_per_host, of_.world); }

  // Of each kind of recompute the largest micro-batch that fits, and half of it: a smaller one takes no less time.
  void try_sharding(int stage, const Sharding& sharding, bool block_ahead) {
    for (const Recomputes recomputes : {Recomputes::none, Recomputes::selective, Recomputes::full}) {
      std::vector<std::pair<Choice, StagePlan>> fitting;
      for (int64_t batch = 1; batch <= of_.most_batch; batch *= 2) {
        const Choice choice{stage, sharding, false, block_ahead, batch, recomputes};
        const auto accumulation = accumulation_for(of_, batch);
        if (!accumulation) continue;
        ++answer_.tried;
        const StagePlan plan = plan_of(choice, config_of(of_, choice, *accumulation));
        note_least(plan.total(), plan.host_total());
        if (!fits(plan)) break;
        fitting.emplace_back(choice, plan);
      }
      const size_t from = fitting.size() > 2 ? fitting.size() - 2 : 0;
      for (size_t each = from; each < fitting.size(); ++each) add_both(fitting[each].first, fitting[each].second);
    }
  }

  // Summed by strips, which every number of ranks gives the same bits, or by the library's ring.
  void add_both(Choice choice, const StagePlan& plan) {
    for (const bool ring : {false, true}) {
      if (ring && of_.world <= of_.cluster.gpus_per_host) continue;  // they cost the same there
      if (ring && of_.config.shoal.fold_group > 0) continue;         // a ring folds nothing
      choice.ring_reduce = ring;
      const Config config = config_of(of_, choice, *accumulation_for(of_, choice.batch));
      add(choice, config, plan, "", 0);
    }
  }

  void drop_what_is_there_twice() {
    std::set<std::string> seen;
    std::erase_if(answer_.candidates, [&](const Candidate& of) { return !seen.insert(of.settings + of.flags).second; });
  }

  bool fits(const StagePlan& plan) const { return plan.total() <= device_ && plan.host_total() <= host_; }

  StagePlan plan_of(const Choice& choice, const Config& config) const {
    PlanSubject subject = of_.subject;
    const SearchQuestion::Activations activations = of_.activations(choice.batch, choice.recomputes);
    subject.activations = activations.device;
    subject.host_activations = activations.host;
    return plan_stage(subject, config, of_.world, true);
  }

  void note_least(size_t device, size_t host) {
    if (answer_.least_device != 0 && device >= answer_.least_device) return;
    answer_.least_device = device;
    answer_.least_host = host * static_cast<size_t>(ranks_of_host());
  }

  // Stage 3 over all ranks, with what must leave the GPU: states, gradients, weights; to the host, or else to the disk.
  void try_offload() {
    for (const Recomputes recomputes : {Recomputes::selective, Recomputes::full}) {
      for (int64_t batch = 1; batch <= of_.most_batch; batch *= 2) {
        const Choice choice{3, {}, false, false, batch, recomputes};
        const auto accumulation = accumulation_for(of_, batch);
        if (!accumulation) continue;
        const Config config = config_of(of_, choice, *accumulation);
        const SearchQuestion::Activations activations = of_.activations(batch, recomputes);
        if (activations.device >= device_ || activations.host >= host_) break;
        const Room room{device_ - activations.device, host_ - activations.host};
        const PlanOf memory_of = [&](const Config& placed) { return plan_of(choice, placed).memory; };
        bool any = false, without_disk = false;
        for (const Placement& placement : placements_within(room.device, config, memory_of)) {
          ++answer_.tried;
          note_least(placement.plan.total() + activations.device, placement.plan.host_total() + activations.host);
          if (placement.plan.host_total() > room.host) continue;
          any = true;
          without_disk |= !placement.uses_disk();
          add_placed(choice, config, placement, activations, room);
        }
        if (!without_disk) {  // as little on disk as must be
          if (const auto placement = find_place(room, 0, config, memory_of)) {
            any = true;
            add_placed(choice, config, *placement, activations, room);
          }
        }
        if (!any) break;
      }
    }
  }

  void add_placed(const Choice& choice, const Config& config, const Placement& placement,
                  const SearchQuestion::Activations& activations, const Room& room) {
    Config placed = with(config, placement);
    StagePlan plan;
    plan.memory = placement.plan;
    plan.activations = activations.device;
    plan.host_activations = activations.host;
    const auto free = static_cast<double>(room.device - std::min(room.device, placement.plan.total()));
    add(choice, placed, plan, settings_of(placement), static_cast<double>(placement.plan.state_ring) + free / 2);
  }

  void add(const Choice& choice, const Config& config, const StagePlan& plan, const std::string& offload, double ring) {
    Ask ask{of_.subject, config, of_.shape, of_.work, of_.cluster, of_.world, ring};
    ask.work.batch = choice.batch;
    ask.work.full_recompute = choice.recomputes == Recomputes::full ? 1 : 0;
    ask.work.selective_recompute = choice.recomputes == Recomputes::selective ? 1 : 0;
    Candidate candidate;
    candidate.stage = choice.stage;
    candidate.sharding = choice.sharding;
    candidate.ring_reduce = choice.ring_reduce;
    candidate.block_ahead = choice.block_ahead;
    candidate.batch = choice.batch;
    candidate.accumulation = config.batch.accumulation_steps;
    candidate.recomputes = choice.recomputes;
    candidate.offload = offload;
    candidate.forecast = forecast_step(ask, by_);
    candidate.device_nbytes = plan.total();
    candidate.host_nbytes = plan.host_total() * static_cast<size_t>(ranks_of_host());
    candidate.settings = json::write(settings_within(of_.written, settings_of_choice(config, choice)));
    candidate.flags = of_.flags;
    if (choice.recomputes != Recomputes::none) {
      candidate.flags += fmt::format("{}--recompute {}", of_.flags.empty() ? "" : " ", name_of(choice.recomputes));
    }
    answer_.candidates.push_back(std::move(candidate));
  }

  const SearchQuestion& of_;
  const Calibration& by_;
  size_t device_ = 0, host_ = 0;
  SearchAnswer answer_;
};

}  // namespace

const char* name_of(Recomputes recomputes) {
  switch (recomputes) {
    case Recomputes::none: break;
    case Recomputes::selective: return "selective";
    case Recomputes::full: return "full";
  }
  return "none";
}

SearchAnswer search(const SearchQuestion& question, const Calibration& calibration) {
  if (question.global_batch % std::max(1, question.world) != 0) {
    throw Error("--global-batch", fmt::format("{} samples cannot be dealt out to {} ranks. Give a multiple of {}.",
                                              question.global_batch, question.world, question.world));
  }
  return Searcher(question, calibration).answer();
}

}  // namespace shoal::forecast
