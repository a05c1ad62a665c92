// See fitted_run.h.
#include "train/fitted_run.h"

#include <utility>

#include "train/auto_placement.h"
#include "train/auto_recompute.h"

namespace shoal::train {

FittedRun fit_to_memory(const PreparedRun& run, Group& world, at::Device device) {
  const RecomputeChoice recompute = settle_recompute(run, world, device);
  PlacedConfig placed = settle_placement(run, recompute.blocks, world, device);
  std::vector<std::string> choices = run.choices;
  for (const std::string& words : {recompute.words, placed.words}) {
    if (!words.empty()) choices.push_back(words);
  }
  return {std::move(placed.config), recompute.blocks, activations_of(run, recompute.blocks, device),
          std::move(choices)};
}

}  // namespace shoal::train
