// Bytes of one rank, by what they are for. The planner fills one before anything is allocated, the engine reports
// another from its ledger; for weights, gradients and states the two are equal to the byte.
#pragma once

#include <cstddef>
#include <string>

namespace shoal {

struct MemoryPlan {
  size_t weights = 0;       // in the model's dtype
  size_t gradients = 0;     // kept until the update
  size_t states = 0;        // master remainder or copy, and moments
  size_t gather_arena = 0;  // stage 3: gathered units, at most at one time
  size_t reduce_slots = 0;  // gradients on their way to the reduction

  size_t model_states() const { return weights + gradients + states; }
  size_t total() const { return model_states() + gather_arena + reduce_slots; }
  bool operator==(const MemoryPlan&) const = default;
};

// A small table with one line a kind.
std::string to_text(const MemoryPlan& plan);

}  // namespace shoal
