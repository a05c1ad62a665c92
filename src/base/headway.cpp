// See headway.h.
#include "base/headway.h"

#include <fmt/format.h>

#include <utility>

namespace shoal {

Headway::Headway(Work work, std::function<void(const std::string&)> say)
    : work_(std::move(work)), say_(std::move(say)), last_(work_.begin) {}

// Who heard of the work hears of its end too.
void Headway::reached(int64_t done, Clock::time_point now) {
  const bool ends = spoke_ && done == work_.total;
  if (!ends && now - last_ < work_.every) return;
  last_ = now;
  spoke_ = true;
  const double seconds = std::chrono::duration<double>(now - work_.begin).count();
  say_(fmt::format("{}: {} of {} {}, {} %, {:.0f} s", work_.what, done, work_.total, work_.things,
                   work_.total > 0 ? done * 100 / work_.total : 100, seconds));
}

}  // namespace shoal
