// See watchdog.h.
#include "comm/watchdog.h"

#include <algorithm>
#include <utility>

namespace shoal {

namespace {

constexpr Timeout kLongestPeriod = std::chrono::milliseconds(100);
// A rank that has done its part of the last collective may end before this one is through with it.
constexpr Timeout kOverdue = std::chrono::milliseconds(1000);
// Enough for whoever asks every few microseconds to see the alarm.
constexpr Timeout kLeaving = std::chrono::milliseconds(100);

Timeout period_of(Timeout timeout) { return std::clamp(timeout / 10, Timeout(1), kLongestPeriod); }

}  // namespace

Watchdog::Watchdog(Options options) : options_(std::move(options)), watch_(options_.timeout) {
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(std::string at, std::shared_ptr<Watch::Probe> probe) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    first = watch_.empty();
    watch_.add(std::move(at), std::move(probe));
  }
  if (first) changed_.notify_all();
}

void Watchdog::run() {
  try {
    if (options_.prepare) options_.prepare();
  } catch (const std::exception&) {  // a GPU that cannot be asked says so at the first question
  }
  const Timeout period = period_of(options_.timeout);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return leaving_ || !watch_.empty(); });
      // Most are over before anybody looks.
      changed_.wait_for(lock, period, [this] { return leaving_; });
      if (leaving_) return;
    }
    if (const std::optional<Finding> finding = look()) return end(*finding);
  }
}

std::optional<Watchdog::Finding> Watchdog::look() {
  ++looks_;
  Watch::Standing standing;
  {
    const std::lock_guard lock(mutex_);
    try {
      const auto oldest = watch_.look(std::chrono::steady_clock::now());
      if (!oldest) return std::nullopt;
      standing = *oldest;
    } catch (const std::exception& error) {
      const std::string at = watch_.oldest();
      return Finding{{options_.rank, at, cause_gpu_failed(options_.rank, error.what())}, at, true};
    }
  }
  const auto own = [&](const std::string& cause) {
    return Finding{{options_.rank, standing.at, cause}, standing.at, true};
  };
  if (options_.fate) {
    if (const auto written = options_.fate->failure()) return Finding{*written, standing.at, false};
  }
  const std::string trouble = options_.trouble ? options_.trouble() : "";
  const bool overdue = standing.under_way && *standing.under_way >= std::min(kOverdue, options_.timeout);
  if (options_.fate && (overdue || !trouble.empty())) {  // who is gone says more than what came of it
    if (const std::string cause = options_.fate->dead_peer(); !cause.empty()) return own(cause);
  }
  if (!trouble.empty()) return own(trouble);
  if (standing.late) return own(cause_stuck(options_.rank, options_.timeout));
  return std::nullopt;
}

// See [Note: how a stuck stream ends].
void Watchdog::end(const Finding& finding) {
  options_.alarm->raise(std::make_exception_ptr(error_of(finding.failure, options_.rank, finding.at)));
  if (finding.own && options_.fate) options_.fate->fail(finding.failure);
  {
    std::unique_lock lock(mutex_);
    ended_ = true;
    changed_.wait_for(lock, kLeaving, [this] { return leaving_; });
  }
  if (options_.stop) options_.stop();
}

}  // namespace shoal
