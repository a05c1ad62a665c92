// See thread_board.h.
//
// [Note: no one leaves while his memory is read]
// Everything is decided under the one mutex. The arrival of the last rank commits all of them to the collective: from
// there on each only reads and departs, without waiting for anything but the readers, so depart() needs no timeout
// and looks at no failure. A rank that gives up earlier takes its arrival back first.
#include "comm/host/thread_board.h"

#include <fmt/format.h>

#include "base/check.h"
#include "comm/failure/blame.h"

namespace shoal {

std::shared_ptr<ThreadWorld::Room> ThreadWorld::room(const std::string& name, const Members& members) {
  const std::lock_guard lock(mutex);
  const std::string key = members.channel_key(name);
  const int index = rooms_of_rank[{key, members.global()}]++;
  std::shared_ptr<Room>& found = rooms[fmt::format("{}/{}", key, index)];
  if (!found) found = std::make_shared<Room>(static_cast<size_t>(members.size()));
  return found;
}

std::vector<int> ThreadWorld::waits_of(int rank) const {
  std::vector<int> found;
  for (const Wait& wait : waits) {
    if (wait.members->global() != rank) continue;
    for (size_t peer = 0; peer < wait.room->size(); ++peer) {
      if ((*wait.room)[peer].phase < wait.phase) found.push_back(wait.members->global(static_cast<int>(peer)));
    }
  }
  return found;
}

void ThreadWorld::fail(const Failure& found) {
  {
    const std::lock_guard lock(mutex);
    if (!failure) failure = found;
  }
  changed.notify_all();
}

ThreadBoard::ThreadBoard(std::shared_ptr<ThreadWorld> world, const Members& members, const std::string& channel_name)
    : world_(std::move(world)),
      members_(members),
      channel_name_(members.channel_name(channel_name)),
      room_(world_->room(channel_name, members)) {}

bool ThreadBoard::all_reached(uint64_t phase) const {
  for (const ThreadWorld::Seat& seat : *room_) {
    if (seat.phase < phase) return false;
  }
  return true;
}

std::optional<Failure> ThreadBoard::trouble(const std::string& at) const {
  if (world_->failure) return world_->failure;
  const uint64_t phase = room_->at(rank()).phase;
  for (int peer = 0; peer < size(); ++peer) {
    const ThreadWorld::Seat& seat = room_->at(peer);
    if (!seat.left || (peer != rank() && seat.phase >= phase)) continue;
    return Failure{members_.global(), at, cause_left(members_.global(peer))};
  }
  return std::nullopt;
}

void ThreadBoard::arrive(const Ticket& ticket, const std::byte* buffer, bool) {
  const std::string at = describe(ticket, channel_name_);
  std::unique_lock lock(world_->mutex);
  ThreadWorld::Seat& own = room_->at(rank());
  if (world_->failure) throw error_of(*world_->failure, members_.global(), at);
  own.ticket = ticket;
  own.buffer = buffer;
  const uint64_t phase = ++own.phase;
  if (all_reached(phase)) {
    lock.unlock();
    world_->changed.notify_all();
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + world_->timeout;
  bool late = false;
  const auto wait = world_->waits.insert(world_->waits.end(), {room_.get(), &members_, phase});
  while (!all_reached(phase)) {
    std::optional<Failure> found = trouble(at);
    if (!found && late) {
      std::vector<int> missing;
      for (int peer = 0; peer < size(); ++peer) {
        if (room_->at(peer).phase < phase) missing.push_back(members_.global(peer));
      }
      found = Failure{members_.global(), at, cause_late(missing, world_->timeout, to_blame(missing))};
    }
    if (found) {
      world_->waits.erase(wait);
      --own.phase;
      const bool own_leave = own.left;
      if (!world_->failure && !own_leave) world_->failure = found;
      lock.unlock();
      world_->changed.notify_all();
      throw error_of(*found, members_.global(), at);
    }
    late = world_->changed.wait_until(lock, deadline) == std::cv_status::timeout;
  }
  world_->waits.erase(wait);
}

std::vector<int> ThreadBoard::to_blame(const std::vector<int>& missing) const {
  return ends_of_waits(missing, [this](int rank) { return world_->waits_of(rank); });
}

// See [Note: no one leaves while his memory is read].
void ThreadBoard::depart() {
  std::unique_lock lock(world_->mutex);
  const uint64_t phase = ++room_->at(rank()).phase;
  if (all_reached(phase)) {
    lock.unlock();
    world_->changed.notify_all();
    return;
  }
  world_->changed.wait(lock, [&] { return all_reached(phase); });
}

void ThreadBoard::withdraw() noexcept {
  {
    const std::lock_guard lock(world_->mutex);
    ++room_->at(rank()).phase;
  }
  world_->changed.notify_all();
}

std::byte* ThreadBoard::staging(size_t) { SHOAL_CHECK(false, "threads reach all memory"); }

std::shared_ptr<Slab> ThreadBoard::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
}

std::unique_ptr<Board> ThreadBoard::open(const std::string& name, const Members& members) {
  return std::make_unique<ThreadBoard>(world_, members, name);
}

void ThreadBoard::fail(const Failure& failure) { world_->fail(failure); }

void ThreadBoard::leave() {
  {
    const std::lock_guard lock(world_->mutex);
    room_->at(rank()).left = true;
  }
  world_->changed.notify_all();
}

namespace {

class FateOfThreads final : public Fate {
 public:
  explicit FateOfThreads(std::shared_ptr<ThreadWorld> world) : world_(std::move(world)) {}

  Timeout timeout() const override { return world_->timeout; }
  std::optional<Failure> failure() override {
    const std::lock_guard lock(world_->mutex);
    return world_->failure;
  }
  std::string dead_peer() override { return ""; }  // a thread does not die alone
  void fail(const Failure& failure) override { world_->fail(failure); }

 private:
  std::shared_ptr<ThreadWorld> world_;  // shared with the boards
};

}  // namespace

std::shared_ptr<Fate> ThreadBoard::fate() const { return std::make_shared<FateOfThreads>(world_); }

}  // namespace shoal
