// Whether the engine may go on. A step that threw half-way has updated some units and not others; a pass that could not
// gather its weights, or a backward that failed, has some gathered or some gradients and not others. From then on every
// door refuses, in one sentence.
#pragma once

#include <string>

#include "engine/passes.h"
#include "optim/stepper.h"

namespace shoal {

class Soundness {
 public:
  // Both outlive this.
  Soundness(Passes& passes, const Stepper& stepper) : passes_(passes), stepper_(stepper) {}

  // Throws unless the engine may go on.
  void check_whole(const std::string& place) const;
  // The same where no backward is to be under way but one that runs: one of autograd's own that ended with an exception
  // told nobody.
  void check(const std::string& place);
  // A backward cannot be finished.
  void abandon_backward(const std::string& because);

 private:
  Passes& passes_;
  const Stepper& stepper_;
};

}  // namespace shoal
