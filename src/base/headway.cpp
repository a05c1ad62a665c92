// See headway.h.
#include "base/headway.h"

#include <fmt/format.h>

#include <utility>

namespace shoal {

Headway::Headway(std::string what, std::string things, int64_t total, std::function<void(const std::string&)> say,
                 Clock::duration every)
    : what_(std::move(what)), things_(std::move(things)), total_(total), say_(std::move(say)), every_(every) {}

// Who heard of the work hears of its end too.
void Headway::reached(int64_t done, Clock::time_point now) {
  const bool ends = spoke_ && done == total_;
  if (!ends && now - last_ < every_) return;
  last_ = now;
  spoke_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  say_(fmt::format("{}: {} of {} {}, {} %, {:.0f} s", what_, done, total_, things_,
                   total_ > 0 ? done * 100 / total_ : 100, seconds));
}

}  // namespace shoal
