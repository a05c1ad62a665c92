// See stepper.h.
#include "optim/stepper.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace shoal {

Stepper::Stepper(const StepParts& parts, const std::vector<double>& lrs, std::vector<double> weight_decays)
    : parts_(parts),
      defers_(parts.config.shoal.defer_update && !parts.weights.publishes()),
      norm_(parts.channel, parts.queue, parts.gradients.trainable_flats(), parts.ledger),
      loss_scale_(parts.config),
      lr_schedule_(parts.config.scheduler, lrs),
      weight_decays_(std::move(weight_decays)) {}

StepResult Stepper::standing() const {
  StepResult result;
  result.loss_scale = loss_scale_.value();
  result.lrs = lrs();
  result.applied_steps = applied_steps_;
  result.skipped_steps = skipped_steps_;
  return result;
}

StepResult Stepper::take(const OutsideUpdate& update_outside) {
  settle_all();
  parts_.gradients.wait();
  const GradNorm norm = norm_.of(parts_.gradients.sum_shard_squares());
  StepResult result = standing();
  result.boundary = true;
  result.applied = norm.finite;
  result.grad_norm = norm.value / result.loss_scale;
  if (norm.finite) {
    const StepNumbers numbers = numbers_of(result);
    if (update_outside) {
      update_from_outside(update_outside, numbers.grad_scale);
    } else {
      pending_ = {numbers, 0};
      if (!defers_) settle_all();
    }
    ++applied_steps_;
  } else {
    ++skipped_steps_;
    result.overflow_unit = unit_of_flat(norm.first_bad_flat);
  }
  loss_scale_.update(!norm.finite);
  result.applied_steps = applied_steps_;
  result.skipped_steps = skipped_steps_;
  return result;
}

StepNumbers Stepper::numbers_of(const StepResult& result) const {
  const Config& config = parts_.config;
  StepNumbers numbers;
  numbers.step = applied_steps_ + 1;
  const double limit = config.gradient_clipping;
  const double clip = limit > 0 ? std::max(1.0, (result.grad_norm + 1e-6) / limit) : 1.0;
  numbers.grad_scale = 1.0 / (result.loss_scale * clip);
  numbers.lrs = result.lrs;
  numbers.weight_decays = weight_decays_;
  numbers.beta1 = lr_schedule_.beta1(applied_steps_).value_or(config.optimizer.beta1);
  numbers.beta2 = lr_schedule_.beta2().value_or(config.optimizer.beta2);
  if (betas_) std::tie(numbers.beta1, numbers.beta2) = *betas_;
  return numbers;
}

void Stepper::settle(int unit) {
  if (!pending_ || pending_->next_unit > unit) return;
  const int units = static_cast<int>(parts_.layout.units.size());
  try {
    for (; pending_->next_unit <= unit; ++pending_->next_unit) {
      parts_.updater.update(pending_->next_unit, pending_->numbers, parts_.weights, parts_.gradients);
      publish(pending_->next_unit);
    }
    if (pending_->next_unit < units) return;
    pending_.reset();
    parts_.weights.finish_publish();
  } catch (...) {
    pending_.reset();
    torn_ = true;
    throw;
  }
}

void Stepper::settle_all() { settle(static_cast<int>(parts_.layout.units.size()) - 1); }

void Stepper::update_from_outside(const OutsideUpdate& update, double grad_scale) {
  try {
    update(grad_scale);
    for (int unit = 0; unit < static_cast<int>(parts_.layout.units.size()); ++unit) publish(unit);
    parts_.weights.finish_publish();
  } catch (...) {
    torn_ = true;
    throw;
  }
}

void Stepper::publish(int unit) {
  parts_.weights.publish(unit);
  if (!parts_.config.zero.overlap_comm) parts_.weights.finish_publish();
}

void Stepper::set_groups(const std::vector<GroupValues>& groups) {
  SHOAL_CHECK_EQ(groups.size(), weight_decays_.size());
  lrs_.clear();
  for (size_t group = 0; group < groups.size(); ++group) {
    lrs_.push_back(groups[group].lr);
    weight_decays_[group] = groups[group].weight_decay;
  }
}

void Stepper::save(EngineProgress& progress) const {
  progress.applied_steps = applied_steps_;
  progress.skipped_steps = skipped_steps_;
  loss_scale_.save(progress);
}

void Stepper::restore(const EngineProgress& progress) {
  applied_steps_ = progress.applied_steps;
  skipped_steps_ = progress.skipped_steps;
  loss_scale_.restore(progress);
}

std::string Stepper::unit_of_flat(int trainable_flat) const {
  int index = 0;
  for (const UnitLayout& unit : parts_.layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (flat.trainable && index++ == trainable_flat) return unit.name;
    }
  }
  return "the sum over all units";  // every unit is finite, their sum is not
}

}  // namespace shoal
