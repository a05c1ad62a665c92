// Watches for a run that has come apart: steps in a row whose loss or gradients are not finite, where nothing that the
// run does by itself can mend it. A dynamic loss scale that is still falling is no such thing. Pure; the engine asks
// it, and `shoal train`, which knows the loss of all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shoal/config.h"
#include "shoal/step_result.h"

namespace shoal {

// What is known of one step.
struct StepOutcome {
  int64_t step = 0;
  std::optional<double> loss = {};  // nothing: not known
  bool finite = true;               // its gradients
  double loss_scale = 1;
  std::string unit = {};  // where a gradient was not finite first; "": nowhere
};

StepOutcome outcome_of(int64_t step, const StepResult& result, std::optional<double> loss);

class NonfiniteSteps {
 public:
  // `most` in a row end the run; 0: none do. `losses_agree`: every rank sees the same losses, and so they count. Else
  // only what all ranks know does, the gradients, and the loss is for the words: no rank may end a run alone.
  NonfiniteSteps(const Config& config, int64_t most, bool losses_agree);

  void see(const StepOutcome& outcome);

  bool in_a_row() const { return count_ > 0; }  // the last step was one
  bool too_many() const { return most_ > 0 && count_ >= most_; }
  bool nothing_else() const { return count_ > 0 && count_ == seen_; }  // every step was one
  bool lost() const { return !loss_is_finite_; }                       // the last step's loss was not finite
  int64_t most() const { return most_; }
  // Which steps, with what loss, where: a sentence with what to do.
  std::string describe() const;

 private:
  bool scale_may_fall(const StepOutcome& outcome) const;

  bool scale_moves_;
  double min_scale_;
  int64_t most_;
  bool losses_agree_;
  int64_t count_ = 0;
  int64_t seen_ = 0;
  bool loss_is_finite_ = true;
  StepOutcome first_;  // of the row
};

}  // namespace shoal
