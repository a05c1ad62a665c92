// See same_bits.h.
#include "train/same_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

constexpr size_t kMostNamed = 12;

// Whether sums travel between groups, and are rounded for it, at one of these numbers of ranks.
bool rounds_sums(const Config& config, const std::vector<int>& worlds) {
  return std::any_of(worlds.begin(), worlds.end(), [&](int world) {
    try {
      return mesh_of(config, world).size_of(kReplica) > 1;
    } catch (const Error&) {
      return false;  // so many ranks have no such groups, and do not train
    }
  });
}

// Whether weights of this run are gathered as int8.
bool quantizes(const Config& config, const SameBitsFacts& facts) {
  return config.zero.quantized_weights || (facts.freezes && config.zero.quantized_frozen_weights);
}

// "" or why another number of ranks has other bits. One line a reason.
std::string why_not(const Config& config, const SameBitsFacts& facts) {
  const int64_t leaves = config.batch.train_batch_size / config.batch.micro_batch_size;
  if (config.gradient_sum) return "gradient_allreduce_op is sum, which grows with the ranks";
  if (facts.on_gpu && config.shoal.reduce == Reduce::nccl) {
    return "shoal.reduce nccl lets NCCL add gradients, in an order of its own; set it to exact";
  }
  if (facts.on_gpu && !facts.deterministic) return "kernels of the GPU may add in any order; add --deterministic";
  if (leaves == 1) {
    return "a step is one micro-batch; give train_batch_size, and train_micro_batch_size_per_gpu a part of it";
  }
  if (facts.worlds.size() <= 1) {
    return fmt::format(
        "the micro-batch or the batch follows from the ranks; give train_batch_size ({}) and "
        "train_micro_batch_size_per_gpu ({}), and leave gradient_accumulation_steps out",
        config.batch.train_batch_size, config.batch.micro_batch_size);
  }
  const int64_t ranks = std::max<int64_t>(1, leaves / config.batch.accumulation_steps);
  if (ranks == 1 && quantizes(config, facts)) {
    return "on one rank weights are exact, and quantized on several";
  }
  if (config.zero.quantized_gradients && rounds_sums(config, facts.worlds)) {
    return "zero_quantized_gradients rounds the sums of hosts; they are the same with as many ranks a host, on two "
           "hosts or more";
  }
  if (config.zero.stage < 2 && !config.shoal.reproducible) {
    return fmt::format("stage {} adds up micro-steps on each rank before ranks do; set shoal.reproducible",
                       config.zero.stage);
  }
  return "";
}

}  // namespace

std::vector<int> divisors_of(int64_t leaves) {
  std::vector<int> found;
  for (int64_t small = 1; small * small <= leaves; ++small) {
    if (leaves % small != 0) continue;
    for (const int64_t divisor : {small, leaves / small}) {
      if (divisor <= std::numeric_limits<int>::max()) found.push_back(static_cast<int>(divisor));
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string same_bits_text(const Config& config, const SameBitsFacts& facts) {
  if (const std::string reason = why_not(config, facts); !reason.empty()) {
    return "other bits at another number of ranks: " + reason;
  }
  std::vector<std::string> named;
  for (const int world : facts.worlds) {
    if (world == 1 && quantizes(config, facts)) continue;  // exact
    if (named.size() == kMostNamed && facts.worlds.size() > kMostNamed + 1) {
      named.push_back(fmt::format("... {}", facts.worlds.back()));
      break;
    }
    named.push_back(std::to_string(world));
  }
  const bool names_threads = facts.threads_follow_ranks && !facts.on_gpu;
  return fmt::format("same bits at {} ranks{}", join(named, ", "),
                     names_threads ? fmt::format(" with --threads {} at each", facts.threads) : "");
}

}  // namespace shoal::train
