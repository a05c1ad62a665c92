// Whether the engine may go on: the one place that knows. A step that threw half-way has updated some units and not
// others; a pass that could not gather its weights, or a backward that failed, has some gathered or some gradients and
// not others. Whoever finds that out says so here, and from then on every door refuses, in one sentence: that of the
// first failure.
#pragma once

#include <string>

namespace shoal {

class Soundness {
 public:
  bool is_lost() const { return !because_.empty(); }
  // What is gathered is lost too: gathers cannot go on. After a step that failed they can, and the other ranks, which
  // may wait in them, have this one.
  bool gathers_are_lost() const { return gathers_are_lost_; }
  // Throws unless the engine may go on.
  void check(const std::string& place) const;

  // An update threw: some units may have taken the step, and others not.
  void step_failed();
  // A backward cannot be finished.
  void backward_failed(const std::string& because);
  // What is gathered is not what the schedule holds for gathered any more. `because`: a sentence.
  void pass_failed(const std::string& because);

 private:
  void lose(std::string because);

  std::string because_;  // sentences; empty: sound
  bool gathers_are_lost_ = false;
};

}  // namespace shoal
