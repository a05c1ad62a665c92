// See timeline.h.
#include "forecast/timeline.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace shoal::forecast {

double Timeline::Split::total() const {
  double sum = 0;
  for (const double each : of) sum += each;
  return sum;
}

Timeline::Id Timeline::add(Lane lane, Purpose purpose, double seconds, std::vector<Id> after, Path path) {
  SHOAL_CHECK(seconds >= 0, "an operation of {} s", seconds);
  const auto id = static_cast<Id>(operations_.size());
  for (const Id each : after) SHOAL_CHECK(each < id, "operation {} waits for {}, which comes later", id, each);
  std::erase_if(after, [](Id each) { return each < 0; });
  operations_.push_back({lane, purpose, seconds, path, std::move(after)});
  return id;
}

void Timeline::run() {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const size_t count = operations_.size();
  begins_.assign(count, kNever);
  ends_.assign(count, kNever);
  std::array<std::vector<Id>, kLanes> lanes;
  for (size_t id = 0; id < count; ++id) {
    lanes[static_cast<size_t>(operations_[id].lane)].push_back(static_cast<Id>(id));
  }
  std::array<size_t, kLanes> next = {};
  std::array<Id, kLanes> running;
  std::array<double, kLanes> left = {};
  running.fill(-1);
  double now = 0;
  // The operation that the lane's next one waits for, -1: none.
  const auto held_by = [&](Id id) {
    for (const Id each : operations_[static_cast<size_t>(id)].after) {
      if (ends_[static_cast<size_t>(each)] == kNever) return each;
    }
    return Id{-1};
  };
  const auto start = [&] {
    bool any = true;
    while (any) {  // an operation that takes no time ends at once, and others may wait for it
      any = false;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (running[lane] >= 0 || next[lane] == lanes[lane].size()) continue;
        const Id id = lanes[lane][next[lane]];
        if (held_by(id) >= 0) continue;
        begins_[static_cast<size_t>(id)] = now;
        ++next[lane];
        if (operations_[static_cast<size_t>(id)].seconds > 0) {
          running[lane] = id;
          left[lane] = operations_[static_cast<size_t>(id)].seconds;
        } else {
          ends_[static_cast<size_t>(id)] = now;
          any = true;
        }
      }
    }
  };
  constexpr auto kCompute = static_cast<size_t>(Lane::compute);
  // Whom the compute lane waits for in the end: the operation that is running, of those that hold it up.
  const auto waits_for = [&] {
    Id id = lanes[kCompute][next[kCompute]];
    for (size_t step = 0; step <= count; ++step) {
      Id holder = held_by(id);
      if (holder < 0) {  // it waits for its lane
        const auto lane = static_cast<size_t>(operations_[static_cast<size_t>(id)].lane);
        holder = running[lane];
      }
      if (holder < 0 || holder == id) break;
      if (begins_[static_cast<size_t>(holder)] != kNever) return operations_[static_cast<size_t>(holder)].purpose;
      id = holder;
    }
    return operations_[static_cast<size_t>(id)].purpose;
  };
  for (;;) {
    start();
    std::array<double, kLanes> rate = {};
    std::array<int, kPaths> on_path = {};
    for (const Id id : running) {
      if (id >= 0) ++on_path[static_cast<size_t>(operations_[static_cast<size_t>(id)].path)];
    }
    const int collectives = on_path[static_cast<size_t>(Path::inside)] + on_path[static_cast<size_t>(Path::between)];
    double step = kNever;
    bool any = false;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (running[lane] < 0) continue;
      any = true;
      const Path path = operations_[static_cast<size_t>(running[lane])].path;
      rate[lane] = path == Path::none ? 1 : 1.0 / on_path[static_cast<size_t>(path)];
      if (lane == kCompute && collectives > 0) rate[lane] = 1 - shared_;
      step = std::min(step, left[lane] / rate[lane]);
    }
    if (!any) break;
    if (running[kCompute] >= 0) {
      Purpose slower = Purpose::gather;
      for (const Lane lane : {Lane::gathers, Lane::reductions}) {
        const Id id = running[static_cast<size_t>(lane)];
        if (id >= 0) slower = operations_[static_cast<size_t>(id)].purpose;
      }
      stretches_.push_back(
          {now, now + step, operations_[static_cast<size_t>(running[kCompute])].purpose, slower, rate[kCompute]});
    } else if (next[kCompute] < lanes[kCompute].size()) {
      const Purpose waited = waits_for();
      stretches_.push_back({now, now + step, waited, waited, 1});
    }
    now += step;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (running[lane] < 0) continue;
      left[lane] -= step * rate[lane];
      // What is over to the last bits of the arithmetic is over.
      if (left[lane] > operations_[static_cast<size_t>(running[lane])].seconds * 1e-9) continue;
      ends_[static_cast<size_t>(running[lane])] = now;
      running[lane] = -1;
    }
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    SHOAL_CHECK(next[lane] == lanes[lane].size(), "operations of lane {} wait for each other", lane);
  }
}

Timeline::Split Timeline::split(double from, double to) const {
  Split split;
  for (const Stretch& each : stretches_) {
    const double length = std::min(to, each.end) - std::max(from, each.begin);
    if (length <= 0) continue;
    split.of[static_cast<size_t>(each.own)] += length * each.own_share;
    split.of[static_cast<size_t>(each.slower)] += length * (1 - each.own_share);
  }
  return split;
}

}  // namespace shoal::forecast
