// See stepper.h.
#include "optim/stepper.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "kernels/decide_body.h"

namespace shoal {

namespace {

constexpr int kSlots = 4;  // more than steps that are decided and not read, or not wholly updated

// bf16 may go on with gradients that are not finite, unless a loss scale has to find out.
bool takes_any_gradient(const Config& config) {
  return config.precision == Precision::bf16 && !config.check_grad_overflow && !config.shoal.scale_loss;
}

size_t in_lines(size_t nbytes) { return (nbytes + 255) / 256 * 256; }

}  // namespace

Stepper::Stepper(const StepParts& parts, const std::vector<double>& lrs, std::vector<double> weight_decays)
    : parts_(parts),
      defers_(parts.config.shoal.defer_update == DeferUpdate::on && !parts.weights.publishes() &&
              !optimizer_row(parts.config.optimizer.kind).by_parameter),
      norm_(parts.channel, parts.queue, parts.layout, parts.ledger),
      loss_scale_(parts.config),
      lr_schedule_(parts.config.scheduler, lrs),
      weight_decays_(std::move(weight_decays)) {
  const size_t progress_nbytes = in_lines(sizeof(kernels::StepProgress));
  const size_t record_nbytes = in_lines(sizeof(kernels::StepRecord));
  const size_t slot_nbytes = record_nbytes + in_lines(weight_decays_.size() * kMostStepNbytes);
  memory_ = parts_.queue.allocate(progress_nbytes + kSlots * slot_nbytes, parts_.ledger, MemoryKind::staging);
  progress_ = reinterpret_cast<kernels::StepProgress*>(memory_->data());
  for (size_t slot = 0; slot < kSlots; ++slot) {
    std::byte* begin = memory_->data() + progress_nbytes + slot * slot_nbytes;
    slots_.push_back({reinterpret_cast<kernels::StepRecord*>(begin), begin + record_nbytes,
                      parts_.queue.make_late_read(sizeof(kernels::StepRecord))});
  }
  place_progress();
  parts_.updater.meet_over(parts_.channel);
}

void Stepper::place_progress() {
  kernels::StepProgress progress;
  progress.scale = loss_scale_.state();
  progress.applied = applied_steps_;
  progress.skipped = skipped_steps_;
  progress.backward_scale = static_cast<float>(progress.scale.scale);
  parts_.queue.upload(progress_, &progress, sizeof(progress));
}

float* Stepper::moving_backward_scale() const {
  return loss_scale_.rules().dynamic ? &progress_->backward_scale : nullptr;
}

StepResult Stepper::upcoming() const {
  SHOAL_CHECK_EQ(unread(), 0);
  StepResult result;
  result.loss_scale = loss_scale_.value();
  result.lrs = lrs(applied_steps_);
  result.applied_steps = applied_steps_;
  result.skipped_steps = skipped_steps_;
  return result;
}

void Stepper::take(const OutsideUpdate& update_outside) {
  SHOAL_CHECK_LE(unread(), kMostUnread);
  settle(last_unit());
  parts_.gradients.wait();
  if (parts_.queue.device() >= 0 && !update_outside) update_ahead();  // a decision that comes later leaves time for it
  StepConstants constants = decide();
  try {
    if (parts_.queue.device() < 0 || update_outside) {
      const kernels::StepRecord& record = await(taken_.back());
      if (record.applied == 0 || update_outside) forget_ahead();
      if (record.applied == 0) return;
      if (update_outside) return update_from_outside(update_outside, record.grad_scale);
    }
    constants.decided = [this, taken = taken_.back()] { return steps_of(taken); };
    constants.is_decided = [reading = slots_[static_cast<size_t>(taken_.back().slot)].reading.get()] {
      return reading->ready();
    };
    pending_ = {std::move(constants), 0};
    begin_updates();
    if (!defers_) settle(last_unit());
  } catch (...) {
    taken_.pop_back();
    throw;
  }
}

// Any thread.
std::optional<GroupSteps> Stepper::steps_of(const Taken& taken) const {
  const kernels::StepRecord& record = await(taken);
  if (record.applied == 0) return std::nullopt;
  StepNumbers numbers = chosen(taken, record);
  numbers.grad_scale = record.grad_scale;
  return group_steps(parts_.config.optimizer, numbers);
}

HostUpdates::Decision Stepper::assume_next() const {
  std::vector<StepNumbers> offered;  // the first of them for `first`
  for (int unknown = 0; unknown <= unread(); ++unknown) offered.push_back(numbers_for(applied_steps_ + unknown));
  const auto steps_for = [this](StepNumbers numbers, double loss_scale) {
    numbers.grad_scale = 1 / loss_scale;
    return group_steps(parts_.config.optimizer, numbers);
  };
  if (taken_.empty()) return [steps = steps_for(offered[0], loss_scale_.value())] { return std::optional(steps); };
  return [this, last = taken_.back(), first = applied_steps_, offered, steps_for] {
    const kernels::StepProgress& after = await(last).after;
    return std::optional(steps_for(offered.at(static_cast<size_t>(after.applied - first)), after.scale.scale));
  };
}

void Stepper::begin_ahead(int unit) {
  if (!parts_.updater.updates_ahead()) return;
  reducing_.push_back(unit);
  update_ahead();
}

void Stepper::update_ahead() {
  while (!reducing_.empty() && parts_.gradients.is_reduced(reducing_.front())) {
    parts_.updater.update_ahead(reducing_.front(), assume_next(), parts_.weights, parts_.gradients);
    reducing_.pop_front();
  }
}

void Stepper::forget_ahead() {
  reducing_.clear();
  parts_.updater.forget_ahead();
}

void Stepper::begin_updates() {
  reducing_.clear();
  try {
    parts_.updater.begin_step(pending_->constants, parts_.weights, parts_.gradients);
  } catch (...) {
    pending_.reset();
    on_torn_();
    throw;
  }
}

void Stepper::settle(int unit) {
  update_to(std::min(unit + parts_.updater.runs_ahead(), last_unit()));
  parts_.updater.need(unit);
}

void Stepper::update_to(int unit) {
  if (!pending_ || pending_->next_unit > unit) return;
  try {
    for (; pending_->next_unit <= unit; ++pending_->next_unit) {
      parts_.updater.update(pending_->next_unit, pending_->constants, parts_.weights, parts_.gradients);
      publish(pending_->next_unit);
    }
    if (pending_->next_unit < static_cast<int>(parts_.layout.units.size())) return;
    pending_.reset();
    parts_.weights.finish_publish();
  } catch (...) {
    parts_.updater.abandon_step();
    pending_.reset();
    on_torn_();
    throw;
  }
}

void Stepper::settle_all() {
  settle(last_unit());
  forget_ahead();
}

void Stepper::update_from_outside(const OutsideUpdate& update, double grad_scale) {
  try {
    update(grad_scale);
    for (int unit = 0; unit < static_cast<int>(parts_.layout.units.size()); ++unit) publish(unit);
    parts_.weights.finish_publish();
  } catch (...) {
    on_torn_();
    throw;
  }
}

void Stepper::publish(int unit) {
  parts_.weights.publish(unit);
  if (!parts_.config.zero.overlap_comm) parts_.weights.finish_publish();
}

StepConstants Stepper::decide() {
  Taken taken;
  taken.slot = next_slot_;
  taken.first_steps_before = applied_steps_;
  for (int unknown = 0; unknown <= unread(); ++unknown) taken.offered.push_back(numbers_for(applied_steps_ + unknown));
  Slot& slot = slots_[static_cast<size_t>(taken.slot)];

  kernels::Decision decision;
  norm_.gather(parts_.gradients.sum_shard_squares(), decision);
  decision.rules = {loss_scale_.rules(), parts_.config.gradient_clipping, takes_any_gradient(parts_.config)};
  decision.progress = progress_;
  decision.record = slot.record;
  StepConstants constants;
  constants.placed = parts_.queue.decide(
      decision, step_choices(parts_.config.optimizer, taken.first_steps_before, taken.offered), slot.picked);
  slot.reading->begin(slot.record);
  taken_.push_back(std::move(taken));
  next_slot_ = (next_slot_ + 1) % kSlots;
  return constants;
}

StepNumbers Stepper::numbers_for(int64_t steps_before) const {
  const OptimizerConfig& optimizer = parts_.config.optimizer;
  StepNumbers numbers;
  numbers.step = steps_before + 1;
  numbers.lrs = lrs(steps_before);
  numbers.weight_decays = weight_decays_;
  numbers.beta1 = lr_schedule_.beta1(steps_before).value_or(optimizer.beta1);
  numbers.beta2 = lr_schedule_.beta2().value_or(optimizer.beta2);
  if (betas_) std::tie(numbers.beta1, numbers.beta2) = *betas_;
  return numbers;
}

bool Stepper::is_known(int unread_step) const {
  return slots_[static_cast<size_t>(taken_[static_cast<size_t>(unread_step)].slot)].reading->ready();
}

const kernels::StepRecord& Stepper::await(const Taken& taken) const {
  return *static_cast<const kernels::StepRecord*>(slots_[static_cast<size_t>(taken.slot)].reading->wait());
}

const StepNumbers& Stepper::chosen(const Taken& taken, const kernels::StepRecord& record) const {
  const int64_t index = record.steps_before - taken.first_steps_before;
  SHOAL_CHECK_GE(index, 0);
  SHOAL_CHECK_LT(index, static_cast<int64_t>(taken.offered.size()));
  return taken.offered[static_cast<size_t>(index)];
}

StepResult Stepper::read() {
  SHOAL_CHECK_GE(unread(), 1);
  const Taken taken = std::move(taken_.front());
  taken_.pop_front();
  const kernels::StepRecord& record = await(taken);
  StepResult result;
  result.boundary = true;
  result.applied = record.applied != 0;
  result.grad_norm = record.grad_norm;
  result.loss_scale = record.loss_scale;
  result.lrs = chosen(taken, record).lrs;
  result.applied_steps = applied_steps_ = record.after.applied;
  result.skipped_steps = skipped_steps_ = record.after.skipped;
  if (!std::isfinite(result.grad_norm)) result.overflow_unit = unit_of_flat(record.first_bad);
  loss_scale_.read(record.after.scale);
  if (record.scale_exhausted != 0) loss_scale_.refuse(applied_steps_ + skipped_steps_, result.overflow_unit);
  return result;
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
  SHOAL_CHECK_EQ(unread(), 0);
  progress.applied_steps = applied_steps_;
  progress.skipped_steps = skipped_steps_;
  loss_scale_.save(progress);
}

void Stepper::restore(const EngineProgress& progress) {
  SHOAL_CHECK_EQ(unread(), 0);
  applied_steps_ = progress.applied_steps;
  skipped_steps_ = progress.skipped_steps;
  loss_scale_.restore(progress);
  place_progress();
}

std::string Stepper::unit_of_flat(int64_t trainable_flat) const {
  int64_t index = 0;
  for (const UnitLayout& unit : parts_.layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (flat.trainable && index++ == trainable_flat) return unit.name;
    }
  }
  return "the sum over all units";  // every unit is finite, their sum is not
}

}  // namespace shoal
