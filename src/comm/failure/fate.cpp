// See fate.h.
#include "comm/failure/fate.h"

#include <thread>

namespace shoal {

std::optional<Failure> what_lies_behind(Fate& fate, const Failure& own, Timeout patience) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  for (const auto deadline = std::chrono::steady_clock::now() + patience;;) {
    if (const auto written = fate.failure()) return written;
    if (const std::string cause = fate.dead_peer(); !cause.empty()) return Failure{own.reporter, own.at, cause};
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace shoal
