// Brings units to this rank and takes them away: asks the gather schedule what to do, and has the weights do it. In a
// first pass it settles each gather with the other ranks, and afterwards the order that they keep to. Passes says which
// units are used; nothing here knows of gradients or graphs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "schedule/gather_schedule.h"
#include "shard/weights.h"
#include "shoal/group.h"

namespace shoal {

struct GatherOptions {
  Stage stage = 0;
  GatherLimits limits;
  bool overlap = true;  // false: every gather is waited for where it is issued
};

// What others do when something happens here; each must be given.
struct GatherEvents {
  std::function<void(int unit)> needed;    // its weights are about to be read
  std::function<void(int unit)> released;  // it was taken away
  std::function<void()> ranks_differ;      // in a first pass: they use different units
  std::function<void(const std::string& because)>
      lost;  // weights could not be gathered, and the schedule says they are
};

class UnitGathers {
 public:
  UnitGathers(const ModelLayout& layout, const GatherOptions& options, Weights& weights, Group& channel,
              GatherEvents events);

  bool is_open() const { return schedule_.is_open(); }
  bool has_passed(int unit) const { return schedule_.has_passed(unit); }
  // The orders of forward and backward are those that all ranks keep to.
  bool orders_agreed() const { return orders_agreed_; }

  void begin(Phase phase);
  // Around a use: of a unit and of those that it borrows from.
  void enter(const std::vector<int>& units);
  void exit(const std::vector<int>& units);
  // This rank leaves the unit out, and takes part in its gather now, if it has not yet.
  void pass_by(int unit);
  // All ranks are at the end of the phase.
  void close_phase();
  // After close_phase(): nothing stays gathered.
  void finish();
  // Once for each phase, when its first pass is over; backward after forward.
  void agree_on_order(Phase phase);

 private:
  void agree_on_next(int wished_unit);
  void merge_orders(Phase phase);
  void carry_out(const std::vector<Action>& actions);
  void or_lose(const std::function<void()>& act);

  const ModelLayout& layout_;
  bool overlap_;
  Weights& weights_;
  Group& channel_;
  GatherEvents events_;
  GatherSchedule schedule_;
  bool orders_agreed_ = false;
  bool evaluation_order_agreed_ = false;
};

}  // namespace shoal
