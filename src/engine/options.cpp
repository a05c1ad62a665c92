// See options.h.
#include "engine/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal {

ReduceOptions reduce_options(const Config& config) {
  return {.piece_numel = config.zero.reduce_bucket_size,
          .slots = reduce_slots(config),
          .errors = {.keep = static_cast<float>(config.zero.error_feedback), .reset = config.zero.error_reset_steps}};
}

float gradient_factor(const Config& config, const Mesh& mesh, bool caller_divides) {
  const double ranks = config.gradient_sum ? 1.0 : mesh.data_ranks();
  const double micro_steps = caller_divides ? 1.0 : static_cast<double>(config.batch.accumulation_steps);
  return static_cast<float>(1.0 / (ranks * micro_steps));
}

PassOptions pass_options(const Config& config, const ModelLayout& layout) {
  return {.stage = stage_of(config), .gather = gather_limits(config, layout), .overlap = config.zero.overlap_comm};
}

std::vector<double> group_lrs(const EngineOptions& options, const Config& config) {
  std::vector<double> lrs;
  for (const ParamGroup& group : options.groups) lrs.push_back(group.lr.value_or(config.optimizer.lr));
  return lrs;
}

std::vector<double> group_weight_decays(const EngineOptions& options, const Config& config) {
  std::vector<double> decays;
  for (const ParamGroup& group : options.groups) {
    decays.push_back(group.weight_decay.value_or(config.optimizer.weight_decay));
  }
  return decays;
}

void check_batch(const Config& config, const Mesh& mesh) {
  const BatchConfig& batch = config.batch;
  const int ranks = mesh.data_ranks();
  const int64_t product = batch.micro_batch_size * batch.accumulation_steps * ranks;
  if (batch.train_batch_size == product) return;
  throw Error("config train_batch_size",
              fmt::format("{} is not {} a rank * {} accumulation steps * {} ranks = {}. Read the config with the world "
                          "size that it is used with (ConfigContext::world_size).",
                          batch.train_batch_size, batch.micro_batch_size, batch.accumulation_steps, ranks, product));
}

void check_gradients(const ModelLayout& layout, const Config& config, at::Device device) {
  if (!device.is_cuda() || config.shoal.offload_gradients != OffloadGradients::on) return;
  for (const std::vector<bool>& flats : gradients_of_host(layout, config)) {
    if (std::find(flats.begin(), flats.end(), true) != flats.end()) return;
  }
  throw Error("config shoal.offload_gradients",
              "is \"on\", and there is no unit that only the host updates. Move the optimizer states "
              "(offload_optimizer.device cpu with shoal.offload_update cpu, or nvme; a ratio of 1), or take the key "
              "out.");
}

void check_speculation(const ModelLayout& layout, const Config& config, at::Device device) {
  if (!config.shoal.speculative_update) return;
  const auto refuse = [](const char* why) { throw Error("config shoal.speculative_update", why); };
  const std::vector<StateChunk> chunks = cut_states(layout, chunk_options(config, 0));
  const bool in_host =
      std::any_of(chunks.begin(), chunks.end(), [](const StateChunk& chunk) { return chunk.tier == Tier::host; });
  if (!in_host || !updates_ahead(config, device.is_cuda())) {
    refuse(
        "is true, and there are no optimizer states in host memory that the host updates. Set offload_optimizer.device "
        "to cpu and shoal.offload_update to cpu, or take the key out.");
  }
  if (config.zero.offload_param.tier_in_use() == Tier::disk) {
    refuse("is true, and weights on disk are at hand for their update only. Set offload_param.device to none or cpu.");
  }
}

}  // namespace shoal
