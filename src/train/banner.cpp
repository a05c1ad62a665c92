// See banner.h.
#include "train/banner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/quantized_text.h"
#include "plan/save_memory.h"
#include "plan/traffic.h"

namespace shoal::train {

namespace {

struct Column {
  MemoryPlan plan;
  size_t master = 0;  // of plan.states
  size_t frozen = 0;  // of weights, on whatever tier
};

Column column_of(const ModelLayout& layout, const Config& config, bool on_gpu) {
  Column column;
  column.plan = plan_memory(layout, memory_options(config, on_gpu));
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      column.master += static_cast<size_t>(state_numel(flat, stage_of(config))) *
                       master_nbytes(flat.dtype, has_narrow_masters(config));
      if (flat.trainable) continue;
      column.frozen += static_cast<size_t>(weight_numel(flat, stage_of(config))) * nbytes_of(flat.dtype);
    }
  }
  return column;
}

std::string memory_table(const BannerFacts& facts) {
  Config whole = facts.config;
  whole.zero.stage = 0;
  whole.zero.offload_optimizer = whole.zero.offload_param = {};
  const Column here = column_of(facts.layout, facts.config, facts.on_gpu);
  const Column there = column_of(facts.layout, whole, facts.on_gpu);
  std::string text = fmt::format("{:<22}{:>14}{:>14}\n",
                                 fmt::format("{} memory, {}", facts.on_gpu ? "GPU" : "host",
                                             facts.layout.mesh.world() == 1 ? "1 rank" : "each rank"),
                                 fmt::format("stage {}", facts.config.zero.stage), "at stage 0");
  const auto line = [&](const char* name, size_t nbytes, size_t nbytes_whole) {
    text += fmt::format("  {:<20}{:>14}{:>14}\n", name, format_nbytes(nbytes), format_nbytes(nbytes_whole));
  };
  line("weights", here.plan.weights, there.plan.weights);
  if (here.frozen > 0) line("  of them frozen", here.frozen, there.frozen);
  line("gradients", here.plan.gradients, there.plan.gradients);
  const bool offloads = here.plan.host_states + here.plan.disk_states > 0;
  if (offloads) {
    line("optimizer states", here.plan.states, there.plan.states);
  } else {
    if (here.master > 0) line("master", here.master, there.master);
    line("moments", here.plan.states - here.master, there.plan.states - there.master);
  }
  line("gathered units", here.plan.gather_arena, there.plan.gather_arena);
  line("gradients on the way", here.plan.reduce_slots, there.plan.reduce_slots);
  if (here.plan.state_ring > 0) line("states on the way", here.plan.state_ring, 0);
  if (here.plan.second_weights > 0) {
    line(keeps_second_copy(facts.config) ? "second copy" : "int8 copy", here.plan.second_weights, 0);
  }
  const auto below = [&](const char* name, size_t nbytes) {
    if (nbytes > 0) text += fmt::format("  {:<20}{:>14}\n", name, format_nbytes(nbytes));
  };
  below("weights, host tier", here.plan.host_weights);
  below("gradients, host tier", here.plan.host_gradients);
  below("states, host tier", here.plan.host_states);
  below("buffers of the disk", here.plan.disk_buffers);
  below("picture of a save", here.plan.save_pictures);
  below("activations on host", facts.host_activations);
  const size_t beside = facts.on_gpu ? 0 : here.plan.host_total();  // in the same memory, without a GPU
  line("total", here.plan.total() + beside, there.plan.total());
  below("weights, disk tier", here.plan.disk_weights);
  below("states, disk tier", here.plan.disk_states);
  return text;
}

std::string traffic_line(const BannerFacts& facts) {
  if (facts.layout.mesh.world() == 1) return "";
  const StepTraffic traffic = plan_traffic(facts.layout, facts.config);
  std::vector<std::string> parts;
  if (traffic.gathered > 0) parts.push_back(format_nbytes(traffic.gathered) + " of weights gathered");
  if (traffic.reduced > 0) parts.push_back(format_nbytes(traffic.reduced) + " of gradients");
  if (traffic.published > 0) parts.push_back(format_nbytes(traffic.published) + " of new weights");
  const bool has_hosts = facts.config.shoal.ranks_per_host > 0;
  return fmt::format(
      "a step     each rank sends and receives {}: {}\n{}", format_nbytes(traffic.total()), join(parts, ", "),
      has_hosts ? fmt::format("by link    {} inside a host, {} between hosts\n", format_nbytes(traffic.inside_hosts()),
                              format_nbytes(traffic.between_hosts))
                : "");
}

std::string saves_line(const BannerFacts& facts) {
  if (!facts.saves_behind) return "";
  const MemoryOptions options = memory_options(facts.config, facts.on_gpu);
  const size_t whole = saved_nbytes(facts.layout, options.offload, /*trained_only=*/true);
  const size_t most = options.save_memory > 0 ? picture_nbytes(whole, options.save_memory) : whole;
  return fmt::format("saves      behind training, through {} of host memory a rank{}\n", format_nbytes(most),
                     options.save_memory == 0 ? " where it is free (shoal.save_memory)"
                     : most < whole ? fmt::format(" for {}: training waits for the rest", format_nbytes(whole))
                                    : "");
}

}  // namespace

std::string model_text(const models::ModelInfo& model) {
  std::string text = fmt::format("{}: {} parameters", model.name, format_count(model.numel));
  if (!model.lora) return text;
  const models::LoraInfo& lora = *model.lora;
  return text + fmt::format("\nlora       {}: {} parameters in {} adapters are trained, {:.3g} %",
                            models::to_text(lora.spec), format_count(lora.numel), lora.modules.size(),
                            100 * static_cast<double>(lora.numel) / static_cast<double>(model.numel));
}

std::string weights_text(const models::ModelInfo& model, uint64_t seed, const std::string& checkpoint) {
  if (!checkpoint.empty()) return "of the checkpoint " + checkpoint;
  if (!model.weights_from.empty()) return "read from " + model.weights_from;
  return fmt::format("made with seed {}: {} comes without any", seed, model.origin);
}

std::string banner(const BannerFacts& facts) {
  const Config& config = facts.config;
  const int world = facts.layout.mesh.world();
  std::string text =
      fmt::format("model      {}\nweights    {}\ndata       {}\n", facts.model, facts.weights, facts.data);
  text += fmt::format("run        stage {}, {}, {}{}, {} {} each{}\n", config.zero.stage, name_of(config.precision),
                      world == 1 ? "one rank" : fmt::format("{} ranks", world),
                      world == 1 ? "" : fmt::format(" over {}", facts.transport), facts.threads,
                      facts.threads == 1 ? "thread" : "threads",
                      facts.recompute == "none" ? "" : fmt::format(", recompute {}", facts.recompute));
  if (!facts.same_bits.empty()) text += fmt::format("exactness  {}\n", facts.same_bits);
  if (const std::string quantized = quantized_text(facts.layout, config); !quantized.empty()) {
    text += fmt::format("quantized  {}\n", quantized);
  }
  if (!facts.products.empty()) text += fmt::format("numbers    {}\n", facts.products);
  text +=
      fmt::format("batch      {} samples a step = {} (micro-batch) x {} (micro-steps) x {} (ranks)\n",
                  config.batch.train_batch_size, config.batch.micro_batch_size, config.batch.accumulation_steps, world);
  return text + traffic_line(facts) + saves_line(facts) + memory_table(facts);
}

}  // namespace shoal::train
