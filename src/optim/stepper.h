// The boundary of a step: the norm, whether it is taken at all, clipping, the update of every unit, and the new weights
// on their way to where they are read. Holds what lasts from step to step: the loss scale, the schedule, the counts.
//
// [Note: the host does not wait for a step]
// Whether a step is taken, and with what, is decided in the queue's memory (kernels/decide.h), and what updates read
// lies there too. A GPU therefore goes through boundaries without the host, which reads what became of a step when
// somebody asks, or a step later. Updates of a step that is skipped are given to the GPU all the same, and leave
// everything as it is. The host knows the number of applied steps only up to the last step that it has read, so it
// offers the constants for every number that can be. The host waits for the decision where it has a part in the step:
// in an update from outside, and, on a thread of its own, where it updates states itself. In host memory the decision
// is known at once, and a skipped step ends there.
//
// [Note: deferred updates]
// Once a step is decided, a unit's update needs nothing but its gradients, which stay as they are until the next
// backward. With `defer_update` a step only decides, and settle() updates units when they are needed: the next forward
// then runs between the updates, and states that are on their way to the device have its time to come. Units are
// updated in their order, as always, so that states come in one order. Ranks that send each other updated weights do
// not defer: the order of their collectives would depend on what each of them uses.
//
// [Note: a step is assumed]
// With `speculative_update` units are updated in the backward that ends a step, as their reductions are over, on the
// assumption that the step is taken and nothing is clipped: see [Note: updates ahead of the decision] in
// host_updates.h. Learning rates and the rest are known then but for what became of the step before, which was decided
// long ago; a thread of the host reads it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/grad_norm.h"
#include "optim/loss_scale.h"
#include "optim/lr_schedule.h"
#include "optim/updater.h"
#include "shoal/engine.h"

namespace shoal {

// What a step works on; all of it outlives the stepper.
struct StepParts {
  const ModelLayout& layout;
  const Config& config;
  Weights& weights;
  Gradients& gradients;
  Updater& updater;
  Group& channel;  // for the norm
  Queue& queue;
  std::shared_ptr<Ledger> ledger;
};

class Stepper {
 public:
  // One learning rate and one weight decay a parameter group.
  Stepper(const StepParts& parts, const std::vector<double>& lrs, std::vector<double> weight_decays);

  // At a boundary: takes the step, or skips it. Collective. An update from outside makes the new weights in place of
  // the updater. At most kMostUnread steps before it are unread.
  static constexpr int kMostUnread = 1;
  void take(const OutsideUpdate& update_outside = {});
  // Steps that were taken and not read.
  int unread() const { return static_cast<int>(taken_.size()); }
  // All that were taken, read or not, those of the checkpoint it goes on from with them.
  int64_t taken_steps() const { return applied_steps_ + skipped_steps_ + unread(); }
  // Whether what became of one of them is there to read, counted from the first.
  bool is_known(int unread_step) const;
  // What became of the first of them; waits until it is decided. Throws where training cannot go on.
  StepResult read();

  // In the backward that ends a step: the unit's reduction has begun. See [Note: a step is assumed].
  void begin_ahead(int unit);

  // Updates the units up to this one, as far as the last step has left that to do; see [Note: deferred updates].
  void settle(int unit);
  // All units; and nothing is assumed of the next step, so weights, gradients and states may be changed.
  void settle_all();
  bool has_pending() const { return pending_.has_value(); }

  // Called when an update threw: some units may have taken the step, and others not.
  void when_torn(std::function<void()> call) { on_torn_ = std::move(call); }

  // What a micro-step's loss is multiplied by, where that moves from step to step: one float in the queue's memory, as
  // the steps taken so far leave it. Null: the loss scale is loss_scale() for ever.
  float* moving_backward_scale() const;

  // With no step unread: what the next one will be taken with.
  StepResult upcoming() const;
  double loss_scale() const { return loss_scale_.value(); }

  // Instead of the schedule's and the config's, from the next step on.
  void set_groups(const std::vector<GroupValues>& groups);
  void set_betas(double beta1, double beta2) { betas_ = {beta1, beta2}; }

  // The part of a checkpoint that belongs here; with no step unread.
  void save(EngineProgress& progress) const;
  void restore(const EngineProgress& progress);

 private:
  // In the queue's memory, what one step leaves there, and its way to the host.
  struct Slot {
    kernels::StepRecord* record = nullptr;
    void* picked = nullptr;
    std::unique_ptr<LateRead> reading;
  };
  struct Taken {
    int slot = 0;
    std::vector<StepNumbers> offered;  // the first of them for `first_steps_before`
    int64_t first_steps_before = 0;
  };

  // Units from the next one on have not been given the last step's update yet.
  struct Pending {
    StepConstants constants;
    int next_unit = 0;
  };

  std::vector<double> lrs(int64_t steps_before) const { return lrs_.empty() ? lr_schedule_.lrs(steps_before) : lrs_; }
  int last_unit() const { return static_cast<int>(parts_.layout.units.size()) - 1; }
  StepNumbers numbers_for(int64_t steps_before) const;
  StepConstants decide();
  // What the host has read, and which of the numbers offered the step took.
  const kernels::StepRecord& await(const Taken& taken) const;
  const StepNumbers& chosen(const Taken& taken, const kernels::StepRecord& record) const;
  std::optional<GroupSteps> steps_of(const Taken& taken) const;
  // What the next step is taken with if it is not skipped and nothing is clipped.
  HostUpdates::Decision assume_next() const;
  // Of the units whose reductions are over.
  void update_ahead();
  void forget_ahead();
  void begin_updates();
  void update_to(int unit);
  void update_from_outside(const OutsideUpdate& update, double grad_scale);
  void publish(int unit);
  void place_progress();
  std::string unit_of_flat(int64_t trainable_flat) const;

  StepParts parts_;
  bool defers_;
  std::optional<Pending> pending_;
  GlobalNorm norm_;
  LossScale loss_scale_;
  LrSchedule lr_schedule_;
  std::vector<double> weight_decays_;
  std::vector<double> lrs_;                         // told from outside; empty: by the schedule
  std::optional<std::pair<double, double>> betas_;  // told from outside
  std::function<void()> on_torn_ = [] {};
  int64_t applied_steps_ = 0;  // as far as was read
  int64_t skipped_steps_ = 0;
  std::deque<int> reducing_;  // units that are to be updated ahead, in the order of their reductions
  std::shared_ptr<Slab> memory_;
  kernels::StepProgress* progress_ = nullptr;  // in it
  std::vector<Slot> slots_;
  int next_slot_ = 0;
  std::deque<Taken> taken_;
};

}  // namespace shoal
