// See wait_reports.h.
#include "comm/failure/wait_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "comm/failure/blame.h"

namespace shoal {

namespace {

constexpr auto kReportPeriod = std::chrono::milliseconds(500);
constexpr auto kReadingPause = std::chrono::milliseconds(50);

std::string waits_key(int rank) { return fmt::format("waits/{}", rank); }

std::vector<int> ranks_in(const std::string& report) {
  std::istringstream text(report);
  std::string number;
  text >> number;
  std::vector<int> ranks;
  for (int rank = 0; text >> rank;) ranks.push_back(rank);
  return ranks;
}

}  // namespace

WaitReports::WaitReports(KeyStore& store, int rank, std::function<std::vector<Wait>()> waits)
    : store_(store), rank_(rank), waits_(std::move(waits)) {
  thread_ = std::thread([this] { run(); });
}

WaitReports::~WaitReports() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void WaitReports::run() {
  std::vector<Wait> before;
  bool told = false;
  std::unique_lock lock(mutex_);
  for (uint64_t look = 1; !stopping_.wait_for(lock, kReportPeriod, [this] { return stopped_; }); ++look) {
    try {
      const std::vector<Wait> now = waits_();
      std::string report = std::to_string(look);
      bool any = false;
      for (const Wait& wait : now) {
        if (std::find(before.begin(), before.end(), wait) == before.end()) continue;  // it may be over in a moment
        report += fmt::format(" {}", wait.for_rank);
        any = true;
      }
      before = now;
      if (!any && !told) continue;
      told = any;
      store_.set(waits_key(rank_), report);
    } catch (const StoreSilent&) {  // a busy store may hear the next one: who reports no more is taken to hang
    } catch (const Error&) {
      return;                          // the store is gone
    } catch (const std::exception&) {  // no memory: the next look may have it
    }
  }
}

std::vector<int> to_blame_by_reports(KeyStore& store, const std::vector<int>& missing,
                                     std::chrono::milliseconds still) {
  std::map<int, std::string> before;  // of the ranks that were asked about
  bool stand_still = false;
  const auto waits_for = [&](int rank) -> std::vector<int> {
    const std::string report = store.get(waits_key(rank)).value_or("");
    const auto first = before.try_emplace(rank, report).first;
    if (ranks_in(report).empty()) return {};
    if (report != first->second) return ranks_in(report);
    stand_still = true;
    return {};
  };
  try {
    for (const auto deadline = std::chrono::steady_clock::now() + still;;) {
      stand_still = false;
      const std::vector<int> ends = ends_of_waits(missing, waits_for);
      if (!stand_still || std::chrono::steady_clock::now() >= deadline) return ends;
      std::this_thread::sleep_for(kReadingPause);
    }
  } catch (const Error&) {
    return missing;
  }
}

}  // namespace shoal
