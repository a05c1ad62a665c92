// Which backward ends a step: by the config's count of micro-steps, or as it is told. The rule is here and nowhere
// else.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/config.h"
#include "shoal/error.h"

namespace shoal {

class MicroSteps {
 public:
  explicit MicroSteps(const BatchConfig& batch) : batch_(batch) {
    if (!batch.managed_gradient_accumulation) told_ = true;  // each step() ends one
  }

  // Backwards since the last step, which is the number of the next one within its step.
  int64_t count() const { return count_; }
  bool next_ends_step() const { return ends_step(count_); }
  // By the rule of now. What the last backward itself did is has_gradients().
  bool last_ends_step() const { return ends_step(count_ - 1); }
  // The last backward ended a step, which was not taken yet: the gradients are the mean over ranks.
  bool has_gradients() const { return count_ > 0 && reduced_; }

  // Whether the backwards that follow end a step; nothing: by the count.
  void tell(std::optional<bool> ends_step) {
    if (!batch_.managed_gradient_accumulation) {
      throw Error("boundary", "with managed_gradient_accumulation false, each step() ends a step. Set no boundary.");
    }
    told_ = ends_step;
  }
  // A backward is through its reductions' beginning.
  void begin_end() { reduced_ = next_ends_step(); }
  void add() { ++count_; }
  // A step is taken, or what came is dropped.
  void begin_step() { count_ = 0; }

 private:
  bool ends_step(int64_t micro_step) const { return told_.value_or(micro_step + 1 >= batch_.accumulation_steps); }

  BatchConfig batch_;
  std::optional<bool> told_;
  int64_t count_ = 0;
  bool reduced_ = false;
};

}  // namespace shoal
