// See host_updates.h.
#include "optim/host_updates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

namespace {

constexpr size_t kAlignment = 4096;

size_t aligned(size_t nbytes) { return (nbytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

HostUpdates::HostUpdates(Queue& queue, Queue& host, StateMemory& states, std::shared_ptr<Ledger> ledger)
    : queue_(queue), host_(host), states_(states), ledger_(std::move(ledger)), thread_([this] { serve(); }) {}

HostUpdates::~HostUpdates() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostUpdates::reserve(size_t weight_nbytes, size_t grad_nbytes) {
  SHOAL_CHECK(!in_round(), "memory is reserved inside a round");
  const size_t grad_offset = std::max(grad_offset_, aligned(weight_nbytes));
  const size_t slot_nbytes = grad_offset + std::max(slot_nbytes_ - grad_offset_, aligned(grad_nbytes));
  wires_.reset();  // copies end before their memory goes
  parts_.clear();
  if (slot_nbytes == slot_nbytes_ && grad_offset == grad_offset_) return;
  memory_.reset();
  slot_nbytes_ = grad_offset_ = 0;
  memory_ = queue_.allocate_host(kSlots * slot_nbytes, ledger_, MemoryKind::staging);
  slot_nbytes_ = slot_nbytes;
  grad_offset_ = grad_offset;
}

void HostUpdates::set_parts(std::vector<Part> parts, const List& list) {
  SHOAL_CHECK(!in_round(), "parts change inside a round");
  size_t weight_nbytes = 0, grad_nbytes = 0;
  for (const Part& part : parts) {
    weight_nbytes = std::max(weight_nbytes, part.weight.moved_nbytes());
    grad_nbytes = std::max(grad_nbytes, part.grad.moved_nbytes());
  }
  reserve(weight_nbytes, grad_nbytes);
  if (parts.empty()) return;
  wires_ = queue_.make_wires(static_cast<int>(parts.size()));
  for (int index = 0; index < static_cast<int>(parts.size()); ++index) {
    const Part& part = parts[static_cast<size_t>(index)];
    parts_.push_back({part, list(index, part.weight.in_host ? part.weight.data : weight_slot(index),
                                 part.grad.in_host ? part.grad.data : grad_slot(index))});
  }
}

void HostUpdates::begin(int first, int last, Decision decision) {
  SHOAL_CHECK(!in_round(), "a round begins inside another");
  if (first == last) return;
  wires_->follow_queue();  // copies wait for what makes the gradients
  next_ = first;
  last_ = last;
  {
    const std::lock_guard lock(mutex_);
    decision_ = std::move(decision);
    begin_ = updated_ = first;
    end_ = last;
    taken_ = false;
  }
  changed_.notify_all();
}

void HostUpdates::finish(int part) {
  SHOAL_CHECK_EQ(part, next_);
  SHOAL_CHECK_LT(part, last_);
  std::unique_lock lock(mutex_);
  if (updated_ <= part) {
    lock.unlock();
    wires_->stop_queue();
    lock.lock();
  }
  changed_.wait(lock, [&] { return updated_ > part || error_; });
  if (error_) {
    next_ = last_;  // there is no more to come
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  const bool taken = taken_;
  lock.unlock();
  ++next_;
  if (taken) {
    wires_->hold_queue(part);
  } else {
    wires_->forget_stop();
  }
}

void HostUpdates::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || decision_; });
    if (stopped_) return;
    const Decision decision = std::exchange(decision_, nullptr);
    busy_ = true;
    const int first = begin_, last = end_;
    lock.unlock();
    std::exception_ptr error;
    try {
      run(first, last, decision);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    busy_ = false;
    changed_.notify_all();
  }
}

void HostUpdates::abandon() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && !decision_; });
  error_ = nullptr;
  next_ = last_;
}

void HostUpdates::bring(int index) {
  const Part& part = parts_[static_cast<size_t>(index)].part;
  if (!part.weight.in_host) wires_->copy_out(index, weight_slot(index), part.weight.data, part.weight.nbytes);
  if (!part.grad.in_host) wires_->copy_out(index, grad_slot(index), part.grad.data, part.grad.nbytes);
}

void HostUpdates::run(int first, int last, const Decision& decision) {
  wires_->enter_thread();
  const std::optional<GroupSteps> steps = decision();
  if (!steps) {
    const std::lock_guard lock(mutex_);
    updated_ = last;
    changed_.notify_all();
    return;
  }
  const PlacedSteps placed = in_host_memory(*steps);
  for (int part = first; part < std::min(first + kSlots, last); ++part) bring(part);
  for (int index = first; index < last; ++index) {
    // The slot of the part before the last is free once its weights have gone home, which was long ago.
    const int later = index - 2 + kSlots;
    if (index - 2 >= first && later < last) {
      wires_->wait_in(index - 2);
      bring(later);
    }
    const Listed& listed = parts_[static_cast<size_t>(index)];
    const Part& part = listed.part;
    states_.begin_use(part.chunk);
    wires_->wait_out(index);
    host_.update(*listed.list, placed);
    states_.end_use(part.chunk);
    if (!part.weight.in_host) {
      wires_->copy_in(index, part.weight.data, weight_slot(index), part.weight.nbytes, /*after=*/-1);
    }
    {
      const std::lock_guard lock(mutex_);
      taken_ = true;
      updated_ = index + 1;
    }
    changed_.notify_all();
  }
}

}  // namespace shoal
