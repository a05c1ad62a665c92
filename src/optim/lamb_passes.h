// The update of a unit by LAMB, whose step is another for each parameter: by the norms of its weights and its update,
// over all ranks.
//
// [Note: two passes]
// The first pass moves the moments and sums up squares: the fp32 weights of a window of elements come to scratch
// memory and are summed, the update takes their place there and is summed too. The sums of all ranks meet as those of
// the gradient norm do, in the tree of layout/sum_tree.h counted from the parameter's begin, so no cut shows in them.
// The second pass makes the update again, from the moments, and applies it. States and weights must be at hand in both:
// LAMB is for states that stay on the device. The ranks' updates of a unit are a collective: all in the same order.
#pragma once

#include <memory>
#include <vector>

#include "device/queue.h"
#include "layout/param_tops.h"
#include "shoal/group.h"

namespace shoal {

class LambPasses {
 public:
  // Elements of a parameter that this rank updates, all that it has of it.
  struct Run {
    kernels::Segment segment;
    int group = 0;
    int param = 0;
    int64_t param_offset = 0;  // first element within the parameter
  };

  // All outlive this object.
  LambPasses(const ModelLayout& layout, const Stage& stage, const std::vector<std::vector<int>>& groups, Group& channel,
             Queue& queue, std::shared_ptr<Ledger> ledger);

  bool knows(int unit) const { return units_[static_cast<size_t>(unit)].is_listed; }
  // What this rank updates of a unit; until forget().
  void list(int unit, const std::vector<Run>& runs);
  void forget();
  // Collective.
  void update(int unit, const PlacedSteps& placed);

 private:
  // Elements that go through the scratch memory at one time.
  struct Window {
    kernels::Segment segment;
    int64_t first_run = 0;
    double *weight_pieces = nullptr, *update_pieces = nullptr;
    std::unique_ptr<UpdateList> direction;  // on the scratch memory
  };
  struct Unit {
    bool is_listed = false;
    UnitTops tops;
    std::vector<Window> windows;
    std::vector<kernels::PieceSums> sums;
    std::shared_ptr<Slab> pieces, ranges, params;
    std::unique_ptr<UpdateList> application;
  };

  const ModelLayout& layout_;
  Group& channel_;
  Queue& queue_;
  std::shared_ptr<Ledger> ledger_;
  std::vector<Unit> units_;
  std::shared_ptr<Slab> scratch_, own_, all_, steps_;  // own_, all_: tops of this rank, and of all
};

}  // namespace shoal
