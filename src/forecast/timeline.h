// Operations on lanes, in time: a small event simulation. An operation begins when those before it on its lane are over
// and those that it waits for are; while it runs it may be slowed down by what runs beside it. Pure; knows nothing of
// models and ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "forecast/link_time.h"

namespace shoal::forecast {

// What is slowed down by what: `compute` by every operation on a link between ranks, operations on one path by each
// other (they share its bandwidth); the others by nothing. Weights and states come to the GPU on lanes of their own.
enum class Lane : uint8_t { compute, gathers, reductions, weights_in, states_in, to_host, host, disk };
inline constexpr int kLanes = 8;

// What a wait for it is booked as.
enum class Purpose : uint8_t { compute, gather, reduction, update, offload };
inline constexpr int kPurposes = 5;

class Timeline {
 public:
  using Id = int32_t;
  // `shared`: the share of computing that is lost beside a collective.
  explicit Timeline(double shared) : shared_(shared) {}

  // Operations of a lane run in the order in which they are added. `after`: those that must be over.
  Id add(Lane lane, Purpose purpose, double seconds, std::vector<Id> after = {}, Path path = Path::none);

  // Runs all of it. Once.
  void run();

  double begin_of(Id id) const { return begins_[static_cast<size_t>(id)]; }
  double end_of(Id id) const { return ends_[static_cast<size_t>(id)]; }

  // What the compute lane did between the two times: its own operations by purpose, at the speed that they have alone,
  // and for what it stood still or was slowed down. The sum is the time between them.
  struct Split {
    double of[kPurposes] = {};
    double total() const;
  };
  Split split(double from, double to) const;

 private:
  struct Operation {
    Lane lane;
    Purpose purpose;
    double seconds;
    Path path;
    std::vector<Id> after;
  };
  // A stretch of time in which the compute lane did one thing.
  struct Stretch {
    double begin, end;
    Purpose own;       // what it ran, or waited for
    Purpose slower;    // what slowed it down
    double own_share;  // of the time
  };

  double shared_;
  std::vector<Operation> operations_;
  std::vector<double> begins_, ends_;
  std::vector<Stretch> stretches_;
};

}  // namespace shoal::forecast
