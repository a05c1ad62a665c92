// See soundness.h.
#include "engine/soundness.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/error.h"

namespace shoal {

void Soundness::check(const std::string& place) const {
  if (is_lost()) throw Error(place, because_);
}

void Soundness::step_failed() {
  lose("an earlier step failed half-way, and its weights are of two steps. Resume from a checkpoint.");
}

void Soundness::backward_failed(const std::string& because) {
  pass_failed(fmt::format("an earlier backward failed half-way, and its gradients are incomplete: {}", because));
}

void Soundness::pass_failed(const std::string& because) {
  gathers_are_lost_ = true;
  const bool ends = because.find_last_of(".!?") + 1 == because.size();
  lose(fmt::format("{}{} Destroy the engine and resume from a checkpoint.", because, ends ? "" : "."));
}

void Soundness::lose(std::string because) {
  if (because_.empty()) because_ = std::move(because);
}

}  // namespace shoal
