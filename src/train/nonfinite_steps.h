// Watches for a run that has come apart: steps in a row whose loss or gradients are not finite, where nothing that the
// run does by itself can mend it. A dynamic loss scale that is still falling is no such thing. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/config.h"

namespace shoal::train {

// What is known of one step, equal on every rank.
struct StepOutcome {
  int64_t step = 0;
  double loss = 0;
  bool applied = true;
  double loss_scale = 1;
  std::string unit = {};  // where a gradient was not finite first; "": nowhere
};

class NonfiniteSteps {
 public:
  // `most` in a row end the run; 0: none do.
  NonfiniteSteps(const Fp16Config& fp16, int64_t most) : fp16_(fp16), most_(most) {}

  void see(const StepOutcome& outcome);

  bool in_a_row() const { return count_ > 0; }  // the last step was one
  bool too_many() const { return most_ > 0 && count_ >= most_; }
  bool lost() const { return !loss_is_finite_; }  // the last step's loss was not finite
  // Which steps, with what loss, where: a sentence with what to do.
  std::string describe() const;

 private:
  bool scale_may_fall(const StepOutcome& outcome) const;

  Fp16Config fp16_;
  int64_t most_;
  int64_t count_ = 0;
  bool loss_is_finite_ = true;
  StepOutcome first_;  // of the row
};

}  // namespace shoal::train
