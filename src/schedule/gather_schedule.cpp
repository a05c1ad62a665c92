// See gather_schedule.h.
#include "schedule/gather_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace shoal {

GatherSchedule::GatherSchedule(std::vector<int64_t> numel, GatherLimits limits)
    : numel_(std::move(numel)),
      limits_(std::move(limits)),
      uses_(numel_.size(), 0),
      live_(numel_.size(), false),
      ahead_(numel_.size(), false) {
  SHOAL_CHECK(limits_.buffer_of.empty() || limits_.buffer_of.size() == numel_.size(), "buffers of {} units, not of {}",
              limits_.buffer_of.size(), numel_.size());
}

std::vector<Action> GatherSchedule::begin(Phase phase) {
  std::vector<Action> actions = open_ ? finish() : std::vector<Action>{};
  const Order& recorded = recorded_[static_cast<size_t>(phase)];
  has_order_ = !recorded.units.empty();
  if (has_order_) {
    expected_ = recorded.units;
  } else if (phase == Phase::backward) {
    expected_ = executed_.units;  // of the forward that has just been finished
    std::reverse(expected_.begin(), expected_.end());
  } else {
    expected_.resize(numel_.size());
    std::iota(expected_.begin(), expected_.end(), 0);
    std::erase_if(expected_, [&](int unit) { return numel_[unit] == 0; });
  }
  open_ = true;
  phase_ = phase;
  executed_ = {};
  used_up_to_ = 0;
  gathered_up_to_ = 0;
  return actions;
}

bool GatherSchedule::must_agree_on(int unit) const {
  const auto u = static_cast<size_t>(unit);
  return open_ && !has_order_ && numel_[u] > 0 && uses_[u] == 0;
}

// What comes first in the likely order goes first: whoever wishes for something else gets it afterwards.
int GatherSchedule::choose(const std::vector<int>& wishes) const {
  int chosen = kNoUnit;
  auto chosen_at = expected_.end();
  for (const int wish : wishes) {
    if (wish == kNoUnit) continue;
    const auto at = find_ahead(wish);
    if (chosen == kNoUnit || at < chosen_at || (at == chosen_at && wish < chosen)) {
      chosen = wish;
      chosen_at = at;
    }
  }
  return chosen;
}

std::vector<Action> GatherSchedule::take_part(int unit) {
  const auto u = static_cast<size_t>(unit);
  SHOAL_CHECK(!live_[u], "unit {} is live here and gathered by others", unit);
  std::vector<Action> actions;
  if (const auto found = find_ahead(unit); found != expected_.end()) {
    skip_to(static_cast<size_t>(found - expected_.begin()), actions);
    used_up_to_ = gathered_up_to_ = used_up_to_ + 1;
  }
  gather(unit, actions);
  release(unit, actions);
  record(unit, false);
  return actions;
}

bool GatherSchedule::has_passed(int unit) const {
  return numel_[unit] == 0 || std::find(executed_.units.begin(), executed_.units.end(), unit) != executed_.units.end();
}

std::vector<Action> GatherSchedule::pass_by(int unit) {
  if (has_passed(unit)) return {};
  if (!has_order_) return take_part(unit);
  std::vector<Action> actions;
  const auto found = find_ahead(unit);
  if (found != expected_.end()) skip_to(static_cast<size_t>(found - expected_.begin()) + 1, actions);
  return actions;
}

std::vector<Action> GatherSchedule::enter(int unit) {
  SHOAL_CHECK(open_, "unit {} entered outside a phase", unit);
  std::vector<Action> actions;
  const auto u = static_cast<size_t>(unit);
  if (numel_[u] == 0) return actions;
  if (uses_[u]++ > 0) return actions;  // in use already, so live
  if (const auto found = find_ahead(unit); found != expected_.end()) {
    const auto entry = static_cast<size_t>(found - expected_.begin());
    skip_to(entry, actions);
    if (gathered_up_to_ <= entry) {
      if (!live_[u]) gather(unit, actions);
      gathered_up_to_ = entry + 1;
    }
    used_up_to_ = entry + 1;
  } else if (!live_[u]) {
    gather(unit, actions);
  }
  if (ahead_[u]) {
    ahead_[u] = false;
    ahead_numel_ -= numel_[u];
  }
  record(unit, true);
  if (has_order_) prefetch(actions);
  return actions;
}

std::vector<Action> GatherSchedule::exit(int unit) {
  std::vector<Action> actions;
  const auto u = static_cast<size_t>(unit);
  if (numel_[u] == 0) return actions;
  SHOAL_CHECK_LT(0, uses_[u]);
  if (--uses_[u] == 0) release(unit, actions);
  return actions;
}

std::vector<Action> GatherSchedule::finish() {
  SHOAL_CHECK(open_, "no phase is open");
  std::vector<Action> actions;
  skip_to(expected_.size(), actions);
  for (int unit = 0; unit < static_cast<int>(live_.size()); ++unit) {
    if (!live_[unit]) continue;
    uses_[unit] = 0;
    release(unit, actions);
  }
  if (!has_order_) recorded_[static_cast<size_t>(phase_)] = executed_;
  open_ = false;
  return actions;
}

void GatherSchedule::prune(Phase phase, const std::vector<uint8_t>& used_by_any) {
  Order& order = recorded_[static_cast<size_t>(phase)];
  SHOAL_CHECK_EQ(used_by_any.size(), order.units.size());
  Order kept;
  std::vector<int> unused = order.units;
  for (size_t entry = 0; entry < order.units.size(); ++entry) {
    if (!used_by_any[entry]) continue;
    kept.units.push_back(order.units[entry]);
    kept.used.push_back(order.used[entry]);
    std::erase(unused, order.units[entry]);
  }
  order = with_unused(kept, std::move(unused), phase == Phase::backward);
}

// See [Note: units that no rank used].
GatherSchedule::Order GatherSchedule::with_unused(const Order& kept, std::vector<int> unused, bool backward) const {
  const auto comes_before = [&](int unit, int other) { return backward ? unit > other : unit < other; };
  const auto family = [&](int unit) { return limits_.family_of.empty() ? unit : limits_.family_of[unit]; };
  std::sort(unused.begin(), unused.end(), comes_before);
  unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
  // The used units next to it on either side, of those that `counts` takes; kNoUnit: none.
  const auto neighbour = [&](int unit, bool behind, const auto& counts) {
    int nearest = kNoUnit;
    for (const int other : kept.units) {
      if (!counts(other) || comes_before(other, unit) == behind || other == unit) continue;
      if (nearest == kNoUnit || comes_before(nearest, other) != behind) nearest = other;
    }
    return nearest;
  };
  // The backward of a unit that was used more than once goes from its last use to its first.
  const std::vector<int>& forward = order(Phase::forward);
  const auto spans_others = [&](int unit) { return std::count(forward.begin(), forward.end(), unit) > 1; };
  std::vector<std::vector<int>> before(kept.units.size() + 1), after(kept.units.size() + 1);
  for (const int unit : unused) {
    const auto is_relative = [&](int other) { return family(other) == family(unit); };
    const int relative_before = neighbour(unit, false, is_relative);
    const int relative_behind = neighbour(unit, true, is_relative);
    if (relative_before != kNoUnit || relative_behind != kNoUnit) {  // beside each of its uses
      for (size_t entry = 0; entry < kept.units.size(); ++entry) {
        const int other = kept.units[entry];
        const bool spans = backward && is_relative(other) && spans_others(other);
        if (other == relative_before || spans) after[entry].push_back(unit);
        const bool next = relative_before == kNoUnit && other == relative_behind;
        if (next || (spans && other != relative_before)) before[entry].push_back(unit);
      }
      continue;
    }
    const int previous = neighbour(unit, false, [](int) { return true; });
    if (previous != kNoUnit) {
      const auto last = std::find(kept.units.rbegin(), kept.units.rend(), previous);
      after[static_cast<size_t>(kept.units.rend() - last) - 1].push_back(unit);
    } else {
      after[0].push_back(unit);  // what was entered first though it is declared later holds the others
    }
  }
  Order all;
  const auto add = [&](const std::vector<int>& units) {
    for (const int unit : units) {
      all.units.push_back(unit);
      all.used.push_back(0);
    }
  };
  for (size_t entry = 0; entry < kept.units.size(); ++entry) {
    add(before[entry]);
    all.units.push_back(kept.units[entry]);
    all.used.push_back(kept.used[entry]);
    add(after[entry]);
  }
  if (kept.units.empty()) add(after[0]);
  return all;
}

std::vector<int> GatherSchedule::upcoming(int count) const {
  std::vector<int> units;
  const auto add = [&](auto begin, auto end) {
    for (; begin != end && static_cast<int>(units.size()) < count; ++begin) {
      if (std::find(units.begin(), units.end(), *begin) == units.end()) units.push_back(*begin);
    }
  };
  add(expected_.begin() + static_cast<std::ptrdiff_t>(gathered_up_to_), expected_.end());
  const Phase next = phase_ == Phase::forward ? Phase::backward : Phase::forward;
  if (const std::vector<int>& order = this->order(next); !order.empty()) {
    add(order.begin(), order.end());
  } else {
    add(expected_.rbegin(), expected_.rend());
  }
  return units;
}

void GatherSchedule::gather(int unit, std::vector<Action>& actions) {
  const auto u = static_cast<size_t>(unit);
  live_[u] = true;
  live_numel_ += numel_[u];
  actions.push_back({Action::Verb::gather, unit});
}

void GatherSchedule::release(int unit, std::vector<Action>& actions) {
  const auto u = static_cast<size_t>(unit);
  live_[u] = false;
  live_numel_ -= numel_[u];
  if (ahead_[u]) {
    ahead_[u] = false;
    ahead_numel_ -= numel_[u];
  }
  actions.push_back({Action::Verb::release, unit});
}

// Entries before `entry` that this rank did not use: taken part in, for the sake of the other ranks. In a first pass
// no rank wished for them.
void GatherSchedule::skip_to(size_t entry, std::vector<Action>& actions) {
  for (; used_up_to_ < entry; ++used_up_to_) {
    const int unit = expected_[used_up_to_];
    const auto u = static_cast<size_t>(unit);
    if (gathered_up_to_ <= used_up_to_) {
      gathered_up_to_ = used_up_to_ + 1;
      if (has_order_ && !live_[u]) {
        gather(unit, actions);
        release(unit, actions);
      }
    } else if (live_[u] && uses_[u] == 0) {
      release(unit, actions);
    }
    record(unit, false);
  }
}

std::vector<int>::const_iterator GatherSchedule::find_ahead(int unit) const {
  return std::find(expected_.begin() + static_cast<std::ptrdiff_t>(used_up_to_), expected_.end(), unit);
}

void GatherSchedule::prefetch(std::vector<Action>& actions) {
  for (; gathered_up_to_ < expected_.size(); ++gathered_up_to_) {
    const int unit = expected_[gathered_up_to_];
    const auto u = static_cast<size_t>(unit);
    if (live_[u]) return;  // still in use: its next gather comes after its release
    const bool is_only_one = ahead_numel_ == 0 && limits_.one_ahead;
    if (ahead_numel_ + numel_[u] > limits_.prefetch_numel && !is_only_one) return;
    if (live_numel_ + numel_[u] > limits_.max_live_numel) return;
    if (buffer_is_taken(unit)) return;
    gather(unit, actions);
    ahead_[u] = true;
    ahead_numel_ += numel_[u];
  }
}

// By a unit that is ahead of use itself: see [Note: what may run ahead].
bool GatherSchedule::buffer_is_taken(int unit) const {
  if (limits_.buffer_of.empty()) return false;
  const int buffer = limits_.buffer_of[unit];
  if (buffer < 0) return false;
  for (size_t other = 0; other < ahead_.size(); ++other) {
    if (ahead_[other] && limits_.buffer_of[other] == buffer) return true;
  }
  return false;
}

void GatherSchedule::record(int unit, bool used) {
  executed_.units.push_back(unit);
  executed_.used.push_back(used ? 1 : 0);
}

std::optional<Inversion> find_inversion(const std::vector<int>& order, const std::vector<uint8_t>& used) {
  if (order.empty()) return std::nullopt;
  const auto units = static_cast<size_t>(*std::max_element(order.begin(), order.end())) + 1;
  const size_t ranks = used.size() / order.size();
  constexpr int kNever = -1, kOften = -2;
  std::vector<std::vector<int>> places(ranks, std::vector<int>(units, kNever));  // the entry of a unit used once
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t entry = 0; entry < order.size(); ++entry) {
      if (!used[rank * order.size() + entry]) continue;
      int& place = places[rank][order[entry]];
      place = place == kNever ? static_cast<int>(entry) : kOften;
    }
  }
  for (size_t unit = 0; unit < units; ++unit) {
    for (size_t other = unit + 1; other < units; ++other) {
      int rank_before = -1, rank_after = -1;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const int place = places[rank][unit], other_place = places[rank][other];
        if (place < 0 || other_place < 0) continue;
        int& found = place < other_place ? rank_before : rank_after;
        if (found < 0) found = static_cast<int>(rank);
      }
      if (rank_before < 0 || rank_after < 0) continue;
      return Inversion{static_cast<int>(unit), static_cast<int>(other), rank_before, rank_after};
    }
  }
  return std::nullopt;
}

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    text += fmt::format("{} {}\n", action.verb == Action::Verb::gather ? "gather" : "release", action.unit);
  }
  return text;
}

}  // namespace shoal
