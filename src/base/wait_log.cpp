// See wait_log.h.
#include "base/wait_log.h"

#include <algorithm>
#include <utility>

namespace shoal {

WaitLog& WaitLog::of_process() {
  static WaitLog* const log = new WaitLog;  // stays: who waits may be the last to go
  return *log;
}

int64_t WaitLog::unix_now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void WaitLog::begin() {
  const std::lock_guard lock(mutex_);
  waits_.clear();
  begun_ns_ = unix_now_ns();
  period_ = ++begun_;
}

std::vector<Wait> WaitLog::end() {
  const int64_t now_ns = unix_now_ns();
  try {
    const std::lock_guard lock(lookouts_mutex_);
    for (const std::function<void()>& look : lookouts_) look();
  } catch (...) {
    stop(now_ns);
    throw;
  }
  return stop(now_ns);
}

std::vector<Wait> WaitLog::stop(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  period_ = 0;
  std::vector<Wait> waits = std::exchange(waits_, {});
  for (Wait& wait : waits) {
    wait.begin_ns = std::max(wait.begin_ns, begun_ns_);
    wait.end_ns = std::min(wait.end_ns, now_ns);
  }
  std::erase_if(waits, [](const Wait& wait) { return wait.end_ns <= wait.begin_ns; });
  std::stable_sort(waits.begin(), waits.end(),
                   [](const Wait& left, const Wait& right) { return left.begin_ns < right.begin_ns; });
  return waits;
}

void WaitLog::add(const std::string& what, int64_t begin_ns, int64_t end_ns) {
  if (period() == 0) return;
  const std::lock_guard lock(mutex_);
  if (period() != 0) waits_.push_back({what, begin_ns, end_ns});
}

void WaitLog::add_until_now(const std::string& what, std::chrono::nanoseconds waited) {
  if (period() == 0) return;
  const int64_t now_ns = unix_now_ns();
  add(what, now_ns - waited.count(), now_ns);
}

WaitLog::Lookout::Lookout(WaitLog& log, std::function<void()> look) : log_(log) {
  const std::lock_guard lock(log_.lookouts_mutex_);
  place_ = log_.lookouts_.insert(log_.lookouts_.end(), std::move(look));
}

WaitLog::Lookout::~Lookout() {
  const std::lock_guard lock(log_.lookouts_mutex_);
  log_.lookouts_.erase(place_);
}

}  // namespace shoal
