// See watchdog.h.
#include "comm/failure/watchdog.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace shoal {

namespace {

constexpr Timeout kLongestPeriod = std::chrono::milliseconds(100);
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

void Watchdog::watch(std::string at, std::shared_ptr<Watch::Probe> probe, uint64_t sequence) {
  bool first = false;
  if (ended_) return;
  {
    const std::lock_guard lock(mutex_);
    first = watch_.empty();
    watch_.add(std::move(at), std::move(probe), sequence);
  }
  if (first) changed_.notify_all();
}

void Watchdog::run() {
  const Timeout period = period_of(options_.timeout);
  for (;;) {
    std::string oldest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return leaving_ || !watch_.empty(); });
      // Most are over before anybody looks.
      changed_.wait_for(lock, period, [this] { return leaving_; });
      if (leaving_) return;
      oldest = watch_.oldest();
    }
    try {
      if (const std::optional<Finding> finding = look(oldest)) return end(*finding);
    } catch (const std::exception&) {  // there is no thread to ask with, or no memory: the next look may have it
    }
  }
}

// See [Note: a runtime that does not answer].
std::optional<Watchdog::Finding> Watchdog::look(const std::string& oldest) {
  ++looks_;
  question_ = std::async(std::launch::async, [this] { return ask(); });
  const auto asked_at = std::chrono::steady_clock::now();
  const Timeout most_silence = std::max(options_.timeout, options_.shortest_silence);
  for (;;) {
    if (question_.wait_for(period_of(options_.timeout)) == std::future_status::ready) {
      const Answer answer = question_.get();
      if (!answer.failed.empty()) return own(answer.failed_at, cause_gpu_failed(options_.rank, answer.failed));
      if (options_.looked) {
        options_.looked(answer.oldest ? answer.oldest->sequence : 0, answer.oldest && answer.oldest->under_way);
      }
      if (!answer.oldest) {  // nothing waits, and yet a rank may have said that the world ends
        if (const auto written = options_.fate ? options_.fate->failure() : std::nullopt) {
          return Finding{*written, "", false};
        }
        return std::nullopt;
      }
      const Watch::Oldest& oldest = *answer.oldest;
      const bool overdue = oldest.under_way && *oldest.under_way >= std::min(options_.overdue, options_.timeout);
      if (auto finding = hear_of_others(oldest.at, overdue, oldest.sequence)) return finding;
      if (oldest.late) {
        return blame(oldest.at, oldest.sequence, cause_stuck(options_.rank, options_.timeout));
      }
      return std::nullopt;
    }
    const auto silence = std::chrono::steady_clock::now() - asked_at;
    if (auto finding = hear_of_others(oldest, silence >= options_.overdue)) return finding;
    if (silence >= most_silence) return own(oldest, cause_no_answer(options_.rank, most_silence));
  }
}

Watchdog::Answer Watchdog::ask() {
  const std::lock_guard lock(mutex_);
  try {
    if (options_.prepare) options_.prepare();
    return {watch_.look(std::chrono::steady_clock::now()), "", ""};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what(), watch_.oldest()};
  }
}

std::optional<Watchdog::Finding> Watchdog::hear_of_others(const std::string& at, bool overdue, uint64_t sequence) {
  if (options_.fate) {
    if (const auto written = options_.fate->failure()) return Finding{*written, at, false};
  }
  const std::string trouble = options_.trouble ? options_.trouble() : "";
  if (options_.fate && overdue) {
    if (const std::string cause = options_.fate->dead_peer(); !cause.empty()) return own(at, cause);
  }
  if (trouble.empty()) return std::nullopt;
  if (options_.fate) {  // who is gone says more than what came of it
    if (const auto behind = what_lies_behind(*options_.fate, {options_.rank, at, ""}, options_.patience)) {
      return Finding{*behind, at, behind->reporter == options_.rank};
    }
  }
  return blame(at, sequence, trouble);
}

Watchdog::Finding Watchdog::blame(const std::string& at, uint64_t sequence, const std::string& otherwise) const {
  const std::string cause = options_.blame ? options_.blame(sequence) : "";
  // It may have taken seconds, and another rank may have been faster.
  if (const auto written = options_.fate ? options_.fate->failure() : std::nullopt) return {*written, at, false};
  return own(at, cause.empty() ? otherwise : cause);
}

Watchdog::Finding Watchdog::own(const std::string& at, const std::string& cause) const {
  return {{options_.rank, at, cause}, at, true};
}

// See [Note: how a stuck stream ends].
void Watchdog::end(const Finding& finding) {
  options_.alarm->raise(std::make_exception_ptr(error_of(finding.failure, options_.rank, finding.at)));
  if (finding.own && options_.fate) options_.fate->fail(finding.failure);
  ended_ = true;
  std::this_thread::sleep_for(kLeaving);
  if (options_.stop) options_.stop();
}

}  // namespace shoal
