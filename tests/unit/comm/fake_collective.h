// A collective on a GPU that there is not: a test says how far it is.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/failure/watch.h"

namespace shoal::testing {

struct FakeCollective final : Watch::Probe {
  explicit FakeCollective(bool has_begun = false) : begun(has_begun) {}
  bool started() override { return begun; }
  bool finished() override {
    if (broken) throw std::runtime_error("an illegal memory access");
    while (mute) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return over;
  }
  std::atomic<bool> begun, over{false}, broken{false};
  std::atomic<bool> mute{false};  // does not answer
};

}  // namespace shoal::testing
