// What the first steps have shown, put to use: how much device memory is left for states that pass through it, and
// which of them the host updates beside the GPU.
#pragma once

#include "engine/engine_parts.h"

namespace shoal {

class OffloadTuning {
 public:
  // The parts outlive this.
  explicit OffloadTuning(EngineParts& parts) : parts_(parts) {}

  // A step was taken with the config's optimizer, or skipped.
  void after_step();

 private:
  void fit();
  void share_update();
  void say_if_unpinned() const;

  EngineParts& parts_;
  int64_t steps_ = 0;
};

}  // namespace shoal
