// See pending_steps.h.
#include "engine/pending_steps.h"

#include <algorithm>
#include <utility>

#include "engine/stopwatch.h"
#include "shoal/error.h"

namespace shoal {

bool PendingStep::known() const {
  return state_->known || (!state_->alive.expired() && state_->home->is_known(*state_));
}

const StepResult& PendingStep::result() const {
  if (!state_->known) {
    if (state_->alive.expired()) {
      throw Error("step", "its result was not read while the engine lived. Call result() before the engine goes.");
    }
    state_->home->read(*state_);
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->result;
}

PendingSteps::PendingSteps(Stepper& stepper, std::weak_ptr<const void> alive, bool& timing, Tell tell)
    : stepper_(stepper), alive_(std::move(alive)), timing_(timing), tell_(std::move(tell)) {}

void PendingSteps::make_room() {
  while (stepper_.unread() > Stepper::kMostUnread || (stepper_.unread() > 0 && stepper_.is_known(0))) read_next();
}

std::shared_ptr<PendingStep::State> PendingSteps::add() {
  unread_.push_back(std::make_shared<PendingStep::State>(PendingStep::State{.home = this, .alive = alive_}));
  return unread_.back();
}

std::shared_ptr<PendingStep::State> PendingSteps::add_inside() {
  const auto step =
      std::make_shared<PendingStep::State>(PendingStep::State{.home = this, .alive = alive_, .ends_step = false});
  if (unread_.empty()) read(*step);
  return step;
}

void PendingSteps::read_all() {
  while (!unread_.empty()) read_next();
}

bool PendingSteps::is_known(const PendingStep::State& step) const {
  if (!step.ends_step) return unread_.empty();
  const auto at = std::find_if(unread_.begin(), unread_.end(), [&](const auto& one) { return one.get() == &step; });
  return at != unread_.end() && stepper_.is_known(static_cast<int>(at - unread_.begin()));
}

void PendingSteps::read(PendingStep::State& step) {
  if (step.ends_step) {
    while (!step.known) read_next();
    return;
  }
  read_all();
  step.result = stepper_.upcoming();
  step.known = true;
}

void PendingSteps::read_next() {
  const std::shared_ptr<PendingStep::State> step = std::move(unread_.front());
  unread_.pop_front();
  step->known = true;
  try {
    {
      Stopwatch watch(step->times.step, timing_);
      step->result = stepper_.read();
    }
    tell_(*step);
    step->losses.clear();
  } catch (...) {
    step->error = std::current_exception();
    throw;
  }
}

}  // namespace shoal
