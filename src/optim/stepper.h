// The boundary of a step: the norm, whether it is taken at all, clipping, the update of every unit, and the new weights
// on their way to where they are read. Holds what lasts from step to step: the loss scale, the schedule, the counts.
//
// [Note: deferred updates]
// Once the norm is known, a unit's update needs nothing but its gradients, which stay as they are until the next
// backward. With `defer_update` a step only decides, and settle() updates units when they are needed: the next forward
// then runs between the updates, and states that are on their way to the device have its time to come. Units are
// updated in their order, as always, so that states come in one order. Ranks that send each other updated weights do
// not defer: the order of their collectives would depend on what each of them uses.
#pragma once

#include <cstdint>
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

  // Between boundaries: what the next step will be taken with.
  StepResult standing() const;
  // At a boundary: waits for the reductions and takes the step, or skips it. Collective. An update from outside makes
  // the new weights in place of the updater.
  StepResult take(const OutsideUpdate& update_outside = {});

  // Updates the units up to this one, as far as the last step has left that to do; see [Note: deferred updates].
  void settle(int unit);
  void settle_all();
  bool has_pending() const { return pending_.has_value(); }

  // Whether an update threw: some units may have taken the step, and others not.
  bool torn() const { return torn_; }

  double loss_scale() const { return loss_scale_.value(); }

  // Instead of the schedule's and the config's, from the next step on.
  void set_groups(const std::vector<GroupValues>& groups);
  void set_betas(double beta1, double beta2) { betas_ = {beta1, beta2}; }

  // The part of a checkpoint that belongs here.
  void save(EngineProgress& progress) const;
  void restore(const EngineProgress& progress);

 private:
  std::vector<double> lrs() const { return lrs_.empty() ? lr_schedule_.lrs(applied_steps_) : lrs_; }
  StepNumbers numbers_of(const StepResult& result) const;
  void update_from_outside(const OutsideUpdate& update, double grad_scale);
  void publish(int unit);
  std::string unit_of_flat(int trainable_flat) const;

  // Units from the next one on have not taken the last step yet.
  struct Pending {
    StepNumbers numbers;
    int next_unit = 0;
  };

  StepParts parts_;
  bool defers_;
  std::optional<Pending> pending_;
  GlobalNorm norm_;
  LossScale loss_scale_;
  LrSchedule lr_schedule_;
  std::vector<double> weight_decays_;
  std::vector<double> lrs_;                         // told from outside; empty: by the schedule
  std::optional<std::pair<double, double>> betas_;  // told from outside
  bool torn_ = false;
  int64_t applied_steps_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace shoal
