// While it lives, a backward pass of the calling thread runs in that thread alone, on whatever device.
#pragma once

#include <c10/core/AutogradState.h>

namespace shoal {

class OwnThreadBackward {
 public:
  OwnThreadBackward() : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~OwnThreadBackward() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before_); }
  OwnThreadBackward(const OwnThreadBackward&) = delete;
  OwnThreadBackward& operator=(const OwnThreadBackward&) = delete;

 private:
  bool before_;
};

}  // namespace shoal
