// See thread_board.h.
//
// [Note: no one leaves while his memory is read]
// Everything is decided under the one mutex. The arrival of the last rank commits all of them to the collective: from
// there on each only reads and departs, without waiting for anything but the readers, so depart() needs no timeout
// and looks at no failure. A rank that gives up earlier takes its arrival back first.
#include "comm/thread_board.h"

#include <fmt/format.h>

#include "base/check.h"
#include "comm/board_carrier.h"
#include "comm/channel_group.h"

namespace shoal {

std::shared_ptr<ThreadWorld::Room> ThreadWorld::room(const std::string& name, int rank) {
  const std::lock_guard lock(mutex);
  const int index = rooms_of_rank[{name, rank}]++;
  std::shared_ptr<Room>& found = rooms[fmt::format("{}/{}", name, index)];
  if (!found) found = std::make_shared<Room>(static_cast<size_t>(size));
  return found;
}

void ThreadWorld::fail(const Failure& found) {
  {
    const std::lock_guard lock(mutex);
    if (!failure) failure = found;
  }
  changed.notify_all();
}

ThreadBoard::ThreadBoard(std::shared_ptr<ThreadWorld> world, int rank, const std::string& channel_name)
    : world_(std::move(world)), rank_(rank), channel_name_(channel_name), room_(world_->room(channel_name, rank)) {}

bool ThreadBoard::all_reached(uint64_t phase) const {
  for (const ThreadWorld::Seat& seat : *room_) {
    if (seat.phase < phase) return false;
  }
  return true;
}

std::optional<Failure> ThreadBoard::trouble(const std::string& at) const {
  if (world_->failure) return world_->failure;
  const uint64_t phase = room_->at(rank_).phase;
  for (int peer = 0; peer < size(); ++peer) {
    const ThreadWorld::Seat& seat = room_->at(peer);
    if (seat.left && (peer == rank_ || seat.phase < phase)) return Failure{rank_, at, cause_left(peer)};
  }
  return std::nullopt;
}

void ThreadBoard::arrive(const Ticket& ticket, const std::byte* buffer, bool) {
  const std::string at = describe(ticket, channel_name_);
  std::unique_lock lock(world_->mutex);
  ThreadWorld::Seat& own = room_->at(rank_);
  if (world_->failure) throw error_of(*world_->failure, rank_, at);
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
  while (!all_reached(phase)) {
    std::optional<Failure> found = trouble(at);
    if (!found && late) {
      std::vector<int> missing;
      for (int peer = 0; peer < size(); ++peer) {
        if (room_->at(peer).phase < phase) missing.push_back(peer);
      }
      found = Failure{rank_, at, cause_late(missing, world_->timeout)};
    }
    if (found) {
      --own.phase;
      const bool own_leave = own.left;
      if (!world_->failure && !own_leave) world_->failure = found;
      lock.unlock();
      world_->changed.notify_all();
      throw error_of(*found, rank_, at);
    }
    late = world_->changed.wait_until(lock, deadline) == std::cv_status::timeout;
  }
}

// See [Note: no one leaves while his memory is read].
void ThreadBoard::depart() {
  std::unique_lock lock(world_->mutex);
  const uint64_t phase = ++room_->at(rank_).phase;
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
    ++room_->at(rank_).phase;
  }
  world_->changed.notify_all();
}

std::byte* ThreadBoard::staging(size_t) { SHOAL_CHECK(false, "threads reach all memory"); }

std::shared_ptr<Slab> ThreadBoard::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
}

std::unique_ptr<Board> ThreadBoard::channel(const std::string& name) {
  return std::make_unique<ThreadBoard>(world_, rank_, name);
}

void ThreadBoard::fail(const Failure& failure) { world_->fail(failure); }

void ThreadBoard::leave() {
  {
    const std::lock_guard lock(world_->mutex);
    room_->at(rank_).left = true;
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

std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout) {
  if (size < 1) throw Error("comm threads", fmt::format("{} is no number of ranks. Give at least 1.", size));
  const auto world = std::make_shared<ThreadWorld>(size, timeout);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(
        std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::make_unique<ThreadBoard>(world, rank, ""))));
  }
  return groups;
}

}  // namespace shoal
