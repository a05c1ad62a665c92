// See soundness.h.
#include "engine/soundness.h"

#include <fmt/format.h>

#include "shoal/error.h"

namespace shoal {

void Soundness::check_whole(const std::string& place) const {
  if (stepper_.torn()) {
    throw Error(place, "an earlier step failed half-way, and its weights are of two steps. Resume from a checkpoint.");
  }
  if (!passes_.lost_because().empty()) {
    throw Error(place, fmt::format("{} Destroy the engine and resume from a checkpoint.", passes_.lost_because()));
  }
}

void Soundness::check(const std::string& place) {
  if (passes_.in_backward() && RunningGraph::id_of_now() < 0) abandon_backward("it never came to its end.");
  check_whole(place);
}

void Soundness::abandon_backward(const std::string& because) {
  passes_.lose(fmt::format("an earlier backward failed half-way, and its gradients are incomplete: {}", because));
}

}  // namespace shoal
