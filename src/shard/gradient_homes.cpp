// See gradient_homes.h.
#include "shard/gradient_homes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/group/full_group.h"

namespace shoal {

GradientHomes::GradientHomes(const std::vector<size_t>& unit_nbytes, int berths, Group& channel, Queue& queue,
                             std::shared_ptr<Ledger> ledger)
    : channel_(channel), queue_(queue), ledger_(std::move(ledger)), wanted_berths_(static_cast<size_t>(berths)) {
  size_t offset = 0;
  for (const size_t nbytes : unit_nbytes) {
    Unit unit;
    unit.offset = offset;
    unit.nbytes = nbytes;
    units_.push_back(std::move(unit));
    offset += nbytes;
    berth_nbytes_ = std::max(berth_nbytes_, nbytes);
  }
  homes_ = Slab::create(offset, Slab::Backing::anonymous, ledger_, MemoryKind::host_gradients);
  for (int berth = 0; berth < berths; ++berth) {
    berths_.push_back({full(channel_).allocate(berth_nbytes_, ledger_, MemoryKind::reduce_slots)});
  }
  copy_streams_ = queue_.make_copy_streams(static_cast<int>(units_.size()));
  copy_streams_->log_stalls_as("host: gradients");
  pinning_ = std::thread([this] { unpinned_because_ = copy_streams_->pin(homes_->data(), homes_->nbytes()); });
}

// Copies end before their memory goes: those of the copy streams, those of collectives, and, where a pass threw before
// it said which these were, whatever the GPU has left to do when it gives berths back.
GradientHomes::~GradientHomes() {
  finish_pinning();
  for (int index = 0; index < static_cast<int>(units_.size()); ++index) {
    const Unit& unit = units_[static_cast<size_t>(index)];
    try {
      if (unit.sent) copy_streams_->wait_out(index);
    } catch (...) {  // said where gradients were needed
    }
    for (const Handle& collective : unit.departure) {
      try {
        collective.wait_over();
      } catch (...) {  // the same
      }
    }
  }
  berths_.clear();
  copy_streams_.reset();
}

void GradientHomes::finish_pinning() {
  if (pinning_.joinable()) pinning_.join();
}

const std::string& GradientHomes::unpinned_because() {
  finish_pinning();
  return unpinned_because_;
}

// A forward that no backward followed left units on their way to berths.
void GradientHomes::begin_micro_step(bool brings) {
  finish_pinning();
  for (int index = 0; index < static_cast<int>(units_.size()); ++index) {
    Unit& unit = units_[static_cast<size_t>(index)];
    if (std::exchange(unit.coming, false))
      copy_streams_->hold_queue(index);  // who has the berth next, comes after the copy
    unit.berth = -1;
    unit.came = false;
  }
  for (Berth& berth : berths_) berth.held = false;
  give_back_berths();
  last_order_ = std::exchange(order_, {});
  next_ = 0;
  brings_ = brings;
  if (brings_) bring_next();
}

// Those beyond the number that was asked for which the last micro-step did not need. The first pass of a model may need
// more than any later one.
void GradientHomes::give_back_berths() {
  const size_t wanted = std::max(wanted_berths_, std::exchange(most_held_, 0));
  for (; berths_.size() > wanted; berths_.pop_back()) {
    if (berths_.back().unit >= 0) await_home(berths_.back().unit);
  }
}

std::byte* GradientHomes::berth(int index) {
  Unit& unit = units_[static_cast<size_t>(index)];
  if (!unit.came) take_berth(index);
  SHOAL_CHECK(unit.berth >= 0, "a unit's gradients are changed after they were reduced");
  if (std::exchange(unit.coming, false)) {
    copy_streams_->hold_queue(index);  // until the copy stream in has brought it
    bring_next();
  }
  return berths_[static_cast<size_t>(unit.berth)].slab->data();
}

// One that nobody holds, of those the one that was left first; else a new one: units that still collect hold all.
void GradientHomes::take_berth(int index) {
  int chosen = -1;
  for (int at = 0; at < static_cast<int>(berths_.size()); ++at) {
    const Berth& berth = berths_[static_cast<size_t>(at)];
    if (berth.held) continue;
    if (chosen < 0 || berth.turn < berths_[static_cast<size_t>(chosen)].turn) chosen = at;
  }
  if (chosen < 0) {
    chosen = static_cast<int>(berths_.size());
    berths_.push_back({full(channel_).allocate(berth_nbytes_, ledger_, MemoryKind::reduce_slots)});
  }
  Berth& berth = berths_[static_cast<size_t>(chosen)];
  if (berth.unit >= 0) await_home(berth.unit);
  berth.unit = index;
  berth.held = true;
  const auto held = std::count_if(berths_.begin(), berths_.end(), [](const Berth& one) { return one.held; });
  most_held_ = std::max(most_held_, static_cast<size_t>(held));
  Unit& unit = units_[static_cast<size_t>(index)];
  unit.berth = chosen;
  unit.came = true;
  order_.push_back(index);
  if (!brings_) return;
  await_home(index);
  copy_streams_->follow_queue();  // which waits for the copies that free the berth, and for the unit's own way home
  copy_streams_->copy_in(index, berth.slab->data(), home(index), unit.nbytes, /*after=*/-1);
  unit.coming = true;
}

void GradientHomes::await_home(int index) {
  Unit& unit = units_[static_cast<size_t>(index)];
  if (std::exchange(unit.awaited, true)) return;
  for (const Handle& collective : unit.departure) collective.wait();  // the queue, for the channel's stream
  if (unit.sent) copy_streams_->hold_queue_out(index);                // and for the copy stream out
}

// One berth stays free, for a unit that comes out of its order.
void GradientHomes::bring_next() {
  for (; next_ < last_order_.size(); ++next_) {
    if (units_[static_cast<size_t>(last_order_[next_])].came) continue;
    const auto free = std::count_if(berths_.begin(), berths_.end(), [](const Berth& berth) { return !berth.held; });
    if (free < 2) return;
    take_berth(last_order_[next_]);
  }
}

void GradientHomes::send_home(int index, size_t offset, size_t nbytes) {
  const std::byte* from = berth(index) + offset;  // the queue waits for what is on its way in
  copy_streams_->mark_used(index);                // and the copy stream out for the queue
  copy_streams_->copy_out(index, home(index) + offset, from, nbytes);
  Unit& unit = units_[static_cast<size_t>(index)];
  unit.sent = true;
  unit.awaited = false;
}

void GradientHomes::leave(int index, std::vector<Handle> collectives) {
  Unit& unit = units_[static_cast<size_t>(index)];
  unit.departure = std::move(collectives);
  unit.awaited = false;
  Berth& berth = berths_[static_cast<size_t>(std::exchange(unit.berth, -1))];
  berth.held = false;
  berth.turn = ++turn_;
  if (brings_) bring_next();
}

std::byte* GradientHomes::free_berth() {
  for (Berth& berth : berths_) {
    if (berth.held) continue;
    if (berth.unit >= 0) await_home(berth.unit);
    return berth.slab->data();
  }
  SHOAL_CHECK(false, "units hold all berths between micro-steps");
  return nullptr;
}

}  // namespace shoal
