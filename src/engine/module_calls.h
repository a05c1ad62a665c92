// Uses of units as hooks on modules report them: enter before a module's forward, exit after it, whatever the mode.
// Finds out which kind of use it is (training, evaluation, the repetition of a checkpointed region) and tells Passes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/passes.h"

namespace shoal {

class ModuleCalls {
 public:
  explicit ModuleCalls(Passes& passes) : passes_(passes) {}

  // The outermost use without gradients, between passes, opens an evaluation that ends with its exit.
  void enter(int unit, const std::vector<at::Tensor>& inputs);
  void exit(int unit, const std::vector<at::Tensor>& outputs);
  // The use ended with an exception. A use that was never entered is left alone.
  void abandon(int unit);
  // See HooksView::read_outside_uses.
  void read_outside_uses(int unit, const std::vector<at::Tensor>& inputs);

 private:
  enum class Kind : uint8_t {
    plain,           // with a graph, or inside an evaluation
    evaluation,      // opened the evaluation
    without_graph,   // in a training pass
    repeated,        // inside backward, live until its exit
    repeated_graph,  // inside backward, live until the repeated graph is through
  };
  struct Use {
    int unit = 0;
    Kind kind = Kind::plain;
  };

  Kind enter_as(int unit, const std::vector<at::Tensor>& inputs);
  void leave(const Use& use, const std::vector<at::Tensor>* outputs);

  Passes& passes_;
  std::vector<Use> uses_;  // innermost last
};

}  // namespace shoal
