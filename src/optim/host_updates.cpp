// See host_updates.h.
#include "optim/host_updates.h"

#include <algorithm>
#include <cstring>
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
  copy_streams_.reset();  // copies end before their memory goes
  parts_.clear();
  if (slot_nbytes == slot_nbytes_ && grad_offset == grad_offset_) return;
  memory_.reset();
  slot_nbytes_ = grad_offset_ = 0;
  memory_ = queue_.allocate_host(kSlots * slot_nbytes, ledger_, MemoryKind::staging);
  slot_nbytes_ = slot_nbytes;
  grad_offset_ = grad_offset;
}

void HostUpdates::reserve_ahead(size_t weight_nbytes) {
  SHOAL_CHECK(parts_.empty(), "memory is reserved when there are parts");
  weights_ahead_ = queue_.allocate_host(weight_nbytes, ledger_, MemoryKind::host_states);
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
  copy_streams_ = queue_.make_copy_streams(static_cast<int>(parts.size()));
  copy_streams_->log_stalls_as("host: updated weights");
  size_t ahead_nbytes = 0;
  for (int index = 0; index < static_cast<int>(parts.size()); ++index) {
    Listed& listed = parts_.emplace_back();
    listed.part = parts[static_cast<size_t>(index)];
    const Part& part = listed.part;
    listed.numel = states_.chunks()[static_cast<size_t>(part.chunk)].numel();
    Elements elements{.states = states_.address(part.chunk),
                      .weight = part.weight.in_host ? part.weight.data : weight_slot(index),
                      .grad = part.grad.in_host ? part.grad.data : grad_slot(index)};
    listed.lists[0] = list(index, elements);
    std::byte* const spare = states_.spare(part.chunk);
    if (!weights_ahead_ || spare == nullptr) continue;
    SHOAL_CHECK_LE(ahead_nbytes + part.weight.nbytes, weights_ahead_->nbytes());
    listed.weight_ahead = weights_ahead_->data() + ahead_nbytes;
    ahead_nbytes += part.weight.nbytes;
    const Elements at_spare{spare, elements.weight, elements.grad};
    listed.lists[1] = list(index, at_spare);
    listed.lists_ahead[0] = list(index, {spare, listed.weight_ahead, elements.grad});
    listed.lists_ahead[1] = list(index, {elements.states, listed.weight_ahead, elements.grad});
  }
}

void HostUpdates::update_ahead(int index, const Decision& assumed, std::function<void()> await) {
  SHOAL_CHECK(!in_round(), "a part is updated ahead of a round inside another");
  if (parts_[static_cast<size_t>(index)].weight_ahead == nullptr) return;
  copy_streams_->mark_used(
      index);  // its copies wait for what the queue has done with its weights, and for nothing later
  {
    const std::lock_guard lock(mutex_);
    ahead_.push_back({index, std::move(await)});
    assumed_ = assumed;
  }
  changed_.notify_all();
}

void HostUpdates::forget_ahead() {
  std::unique_lock lock(mutex_);
  ahead_.clear();
  changed_.wait(lock, [&] { return !busy_ && !decision_; });
  assumed_steps_.reset();
  for (Listed& listed : parts_) listed.is_ahead = false;
}

HostUpdates::Ahead HostUpdates::ahead() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void HostUpdates::begin(int first, int last, Decision decision, std::function<bool()> is_known) {
  SHOAL_CHECK(!in_round(), "a round begins inside another");
  if (first == last) return;
  copy_streams_->mark_queue();  // the round's copies wait for what makes the gradients; those of parts ahead do not
  next_ = first;
  last_ = last;
  {
    const std::lock_guard lock(mutex_);
    decision_ = std::move(decision);
    is_known_ = std::move(is_known);
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
    copy_streams_->stop_queue();
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
    copy_streams_->hold_queue(part);
  } else {
    copy_streams_->forget_stop();
  }
}

void HostUpdates::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || decision_ || !ahead_.empty(); });
    if (stopped_) return;
    busy_ = true;
    if (decision_ && !ahead_.empty() && is_decided()) ahead_.clear();  // the round updates the rest itself
    if (!ahead_.empty()) {
      const PartAhead part = std::move(ahead_.front());
      ahead_.pop_front();
      const Decision assumed = assumed_;
      lock.unlock();
      try {
        run_ahead(part, assumed);
      } catch (...) {  // the round does it again, and meets what is wrong
      }
      lock.lock();
    } else {
      const Decision decision = std::exchange(decision_, nullptr);
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
    }
    busy_ = false;
    changed_.notify_all();
  }
}

// A device that failed says so where the round needs it.
bool HostUpdates::is_decided() const {
  try {
    copy_streams_->enter_thread();
    return !is_known_ || is_known_();
  } catch (...) {
    return true;
  }
}

void HostUpdates::abandon() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && !decision_; });
  error_ = nullptr;
  next_ = last_;
}

// Into the chunk's spare place and the weights' memory ahead. Only the gradients pass through a slot: of the parts
// ahead one is under way at a time.
void HostUpdates::run_ahead(const PartAhead& ahead, const Decision& assumed) {
  const int index = ahead.part;
  copy_streams_->enter_thread();
  if (!assumed_steps_) assumed_steps_ = assumed();
  if (!assumed_steps_) return;
  Listed& listed = parts_[static_cast<size_t>(index)];
  const Part& part = listed.part;
  if (!part.weight.in_host) copy_streams_->copy_out(index, listed.weight_ahead, part.weight.data, part.weight.nbytes);
  const size_t nbytes = states_.chunks()[static_cast<size_t>(part.chunk)].nbytes;
  copy_in_host(states_.spare(part.chunk), states_.address(part.chunk), nbytes);
  copy_streams_->wait_used(index);  // the queue may still have had to write weights of the host that somebody set
  if (part.weight.in_host) copy_in_host(listed.weight_ahead, part.weight.data, part.weight.nbytes);
  if (ahead.await) ahead.await();
  if (!part.grad.in_host) copy_streams_->copy_out(index, grad_slot(index), part.grad.data, part.grad.nbytes);
  copy_streams_->wait_out(index);
  host_.update(*listed.lists_ahead[listed.place], in_host_memory(*assumed_steps_));
  listed.is_ahead = true;
  const std::lock_guard lock(mutex_);
  counts_.updated_numel += listed.numel;
}

void HostUpdates::take_over(int index) {
  Listed& listed = parts_[static_cast<size_t>(index)];
  const Part& part = listed.part;
  states_.take_spare(part.chunk);
  listed.place = 1 - listed.place;
  if (part.weight.in_host) {
    copy_in_host(part.weight.data, listed.weight_ahead, part.weight.nbytes);
  } else {
    copy_streams_->copy_in(index, part.weight.data, listed.weight_ahead, part.weight.nbytes, /*after=*/-1);
  }
}

void HostUpdates::copy_in_host(std::byte* to, const std::byte* from, size_t nbytes) {
  host_.on_host(static_cast<int64_t>(nbytes), [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void HostUpdates::bring(int index) {
  if (parts_[static_cast<size_t>(index)].is_ahead) return;
  const Part& part = parts_[static_cast<size_t>(index)].part;
  if (!part.weight.in_host) copy_streams_->copy_out(index, weight_slot(index), part.weight.data, part.weight.nbytes);
  if (!part.grad.in_host) copy_streams_->copy_out(index, grad_slot(index), part.grad.data, part.grad.nbytes);
}

void HostUpdates::run(int first, int last, const Decision& decision) {
  copy_streams_->enter_thread();
  const std::optional<GroupSteps> steps = decision();
  const std::optional<GroupSteps> assumed = std::exchange(assumed_steps_, std::nullopt);
  if (!steps || !assumed || !are_same(*steps, *assumed)) {
    for (Listed& listed : parts_) listed.is_ahead = false;
  }
  if (!steps) {
    const std::lock_guard lock(mutex_);
    updated_ = last;
    changed_.notify_all();
    return;
  }
  copy_streams_->follow_mark();  // copies of the round wait for what the queue had to do when it was begun
  const PlacedSteps placed = in_host_memory(*steps);
  for (int part = first; part < std::min(first + kSlots, last); ++part) bring(part);
  for (int index = first; index < last; ++index) {
    // The slot of the part before the last is free once its weights have gone home, which was long ago.
    const int later = index - 2 + kSlots;
    if (index - 2 >= first && later < last) {
      copy_streams_->wait_in(index - 2);
      bring(later);
    }
    Listed& listed = parts_[static_cast<size_t>(index)];
    const bool taken_over = std::exchange(listed.is_ahead, false);
    if (taken_over) {
      take_over(index);
    } else {
      update(index, placed);
    }
    {
      const std::lock_guard lock(mutex_);
      taken_ = true;
      updated_ = index + 1;
      if (taken_over) counts_.taken_numel += listed.numel;
    }
    changed_.notify_all();
  }
}

void HostUpdates::update(int index, const PlacedSteps& placed) {
  const Listed& listed = parts_[static_cast<size_t>(index)];
  const Part& part = listed.part;
  states_.begin_use(part.chunk);
  copy_streams_->wait_out(index);
  host_.update(*listed.lists[listed.place], placed);
  states_.end_use(part.chunk);
  if (part.weight.in_host) return;
  copy_streams_->copy_in(index, part.weight.data, weight_slot(index), part.weight.nbytes, /*after=*/-1);
}

}  // namespace shoal
