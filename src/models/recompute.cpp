// See recompute.h.
#include "models/recompute.h"

#include <fmt/format.h>

namespace shoal::models {

RecomputedBlocks blocks_of(Recompute recompute, int64_t layers) {
  switch (recompute) {
    case Recompute::none:
    case Recompute::automatic: break;
    case Recompute::selective: return {.full = 0, .selective = layers};
    case Recompute::full: return {.full = layers, .selective = 0};
  }
  return {};
}

std::string describe(const RecomputedBlocks& blocks, int64_t layers) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (blocks == blocks_of(recompute, layers)) return name_of(recompute);
  }
  std::string text;
  if (blocks.full > 0) text = fmt::format("full in {} of {} blocks", blocks.full, layers);
  if (blocks.selective == 0) return text;
  if (blocks.full + blocks.selective == layers) return text + ", selective in the others";
  return fmt::format("{}{}selective in {}{}", text, text.empty() ? "" : ", ", blocks.selective,
                     text.empty() ? fmt::format(" of {} blocks", layers) : "");
}

RecomputedBlocks least_recompute(int64_t layers, const std::function<bool(const RecomputedBlocks&)>& fits) {
  for (int64_t selective = 0; selective <= layers; ++selective) {
    if (const RecomputedBlocks blocks{0, selective}; fits(blocks)) return blocks;
  }
  for (int64_t full = 1; full < layers; ++full) {
    if (const RecomputedBlocks blocks{full, layers - full}; fits(blocks)) return blocks;
  }
  return blocks_of(Recompute::full, layers);
}

}  // namespace shoal::models
