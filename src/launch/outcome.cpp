// See outcome.h.
#include "launch/outcome.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

namespace shoal::launch {

int LaunchOutcome::first_failed() const {
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].failed() && !ends[i].ended_by_us) return static_cast<int>(i);
  }
  return -1;
}

bool LaunchOutcome::failed() const { return cause() != nullptr; }

const RankEnd* LaunchOutcome::cause() const {
  int index = first_failed();
  for (size_t i = 0; index < 0 && i < ends.size(); ++i) {
    if (ends[i].failed()) index = static_cast<int>(i);
  }
  return index < 0 ? nullptr : &ends[static_cast<size_t>(index)];
}

int LaunchOutcome::exit_code() const {
  if (interrupted != 0) return 128 + interrupted;
  const RankEnd* end = cause();
  if (end == nullptr) {
    const auto unfinished = std::find_if(ends.begin(), ends.end(), [](const RankEnd& each) { return each.unfinished; });
    return unfinished == ends.end() ? 0 : unfinished->exit_code;
  }
  return end->signal != 0 ? 128 + end->signal : end->exit_code;
}

std::vector<RankEnd> in_likely_order(std::vector<RankEnd> ends) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.signal != 0 && b.signal == 0; });
  return ends;
}

std::string how_it_ended(const RankEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.exit_code);
  return fmt::format("signal {} ({})", end.signal, strsignal(end.signal));
}

std::string closing_text(const LaunchOutcome& outcome) {
  const int first = outcome.first_failed();
  std::string text;
  if (outcome.interrupted != 0) {
    text += fmt::format("shoal: the launch was ended by signal {} ({}).\n", outcome.interrupted,
                        strsignal(outcome.interrupted));
  }
  for (size_t i = 0; i < outcome.ends.size(); ++i) {
    const RankEnd& end = outcome.ends[i];
    if (!end.failed() || static_cast<int>(i) == first) continue;
    text += fmt::format("shoal: rank {} ended with {}{}.\n", end.rank, how_it_ended(end),
                        end.ended_by_us ? ", sent by the launcher" : "");
  }
  // After an interruption the ranks end as they were told to; their last lines explain nothing.
  if (first < 0 || outcome.interrupted != 0) {
    if (first >= 0) {
      const RankEnd& end = outcome.ends[first];
      text += fmt::format("shoal: rank {} ended with {}.\n", end.rank, how_it_ended(end));
    }
    return text;
  }
  const RankEnd& end = outcome.ends[first];
  text += fmt::format("shoal: rank {} failed first, with {}.", end.rank, how_it_ended(end));
  if (end.last_lines.empty()) return text + " It printed nothing.\n";
  text += " Its last lines:\n";
  size_t at = 0;
  while (at < end.last_lines.size()) {
    const size_t stop = std::min(end.last_lines.find('\n', at), end.last_lines.size());
    text += fmt::format("  | {}\n", end.last_lines.substr(at, stop - at));
    at = stop + 1;
  }
  return text;
}

}  // namespace shoal::launch
