// See shm_board.h.
#include "comm/host/shm_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "comm/host/futex.h"

namespace shoal {

namespace {

constexpr auto kLongestSleep = std::chrono::milliseconds(50);
constexpr int kMostSpins = 256;
constexpr int kFewestSpins = 4;

}  // namespace

// Room := bell, sleepers, then one Seat a rank. Zero bytes are a valid beginning.
struct alignas(64) ShmBoard::Room {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleepers;
};

struct alignas(128) ShmBoard::Seat {
  std::atomic<uint64_t> phase;  // odd: arrived at collective phase / 2; even: departed from it
  std::atomic<uint32_t> left;
  // Written before the phase becomes odd, read by peers until it is even.
  uint32_t staged;
  SlabPlace slab;
  uint64_t offset;
  Ticket ticket;
};

ShmBoard::Room& ShmBoard::room() const { return *reinterpret_cast<Room*>(segment_.data()); }

ShmBoard::Seat& ShmBoard::seat(int rank) const {
  return reinterpret_cast<Seat*>(segment_.data() + std::max(sizeof(Room), alignof(Seat)))[rank];
}

ShmBoard::ShmBoard(std::shared_ptr<ShmWorld> world, const Members& members, const std::string& channel_name)
    : world_(std::move(world)),
      members_(members),
      channel_name_(members.channel_name(channel_name)),
      wait_note_(world_->take_wait_note()) {
  const size_t nbytes = std::max(sizeof(Room), alignof(Seat)) + sizeof(Seat) * static_cast<size_t>(size());
  segment_ = world_->open_channel(members.channel_key(channel_name), nbytes, members.global(0));
  reading_.resize(static_cast<size_t>(size()));
}

ShmBoard::~ShmBoard() {
  leave();
  world_->give_back(wait_note_);
}

// See [Note: the bell].
void ShmBoard::ring() {
  room().bell.fetch_add(1);
  if (room().sleepers.load() > 0) futex_wake_all(room().bell);
}

void ShmBoard::move_on(uint64_t phase) {
  seat(rank()).phase.store(phase);
  ring();
}

bool ShmBoard::all_reached(uint64_t phase) const {
  for (int peer = 0; peer < size(); ++peer) {
    if (seat(peer).phase.load() < phase) return false;
  }
  return true;
}

std::vector<int> ShmBoard::missing(uint64_t phase) const {
  std::vector<int> found;
  for (int peer = 0; peer < size(); ++peer) {
    if (seat(peer).phase.load() < phase) found.push_back(members_.global(peer));
  }
  return found;
}

std::optional<Failure> ShmBoard::trouble(uint64_t phase, Deadline deadline) {
  if (auto written = world_->failure()) return written;
  const int own = members_.global();
  if (seat(rank()).left.load() != 0) return Failure{own, at_, cause_left(own)};
  for (int peer = 0; peer < size(); ++peer) {
    // Left is read first: a rank that moved on and then left was there.
    const bool left = seat(peer).left.load() != 0;
    if (left && seat(peer).phase.load() < phase) return Failure{own, at_, cause_left(members_.global(peer))};
  }
  const std::vector<int> late = missing(phase);
  if (late.empty()) return std::nullopt;
  if (const std::string cause = world_->dead_peer(); !cause.empty()) return Failure{own, at_, cause};
  if (std::chrono::steady_clock::now() >= deadline) {
    const std::vector<int> to_blame = world_->to_blame(late, [&] { note_wait(phase); });
    return Failure{own, at_, cause_late(late, world_->timeout(), to_blame)};
  }
  return std::nullopt;
}

void ShmBoard::note_wait(uint64_t phase) {
  const std::vector<int> late = missing(phase);
  world_->note_wait(wait_note_, late.empty() ? -1 : late.front());
}

// See [Note: the bell].
void ShmBoard::wait_until_all_reached(uint64_t phase, int& spins) {
  for (int spin = 0; spin < spins; ++spin) {
    if (all_reached(phase)) {
      spins = std::min(kMostSpins, spins * 2);
      return;
    }
    std::this_thread::yield();  // a spin that lets others run: ranks may outnumber the cores
  }
  spins = std::max(kFewestSpins, spins / 2);

  const auto deadline = std::chrono::steady_clock::now() + world_->timeout();
  std::optional<Failure> found;
  bool looked = false;
  bool noted = false;
  room().sleepers.fetch_add(1);
  for (;;) {
    const uint32_t bell = room().bell.load();
    if (all_reached(phase)) break;
    // A look around costs system calls: only before sleeping twice on the same bell.
    if (looked) {
      note_wait(phase);
      noted = true;
    }
    if (looked && (found = trouble(phase, deadline))) break;
    if (!looked && (found = world_->failure())) break;
    const auto before = std::chrono::steady_clock::now();
    futex_wait(room().bell, bell, std::min<std::chrono::nanoseconds>(kLongestSleep, world_->timeout()));
    looked = seat(rank()).left.load() != 0 || std::chrono::steady_clock::now() - before >= kLongestSleep / 2 ||
             std::chrono::steady_clock::now() >= deadline;
  }
  room().sleepers.fetch_sub(1);
  if (noted) world_->note_wait(wait_note_, -1);
  if (!found) return;
  if (seat(rank()).left.load() == 0) fail(*found);
  // What another rank wrote down first is the better explanation: this one may follow from it.
  throw error_of(world_->failure().value_or(*found), members_.global(), at_);
}

void ShmBoard::arrive(const Ticket& ticket, const std::byte* buffer, bool staged) {
  at_ = describe(ticket, channel_name_);
  if (auto written = world_->failure()) throw error_of(*written, members_.global(), at_);
  world_->exchange_dead_slabs();
  Seat& own = seat(rank());
  own.staged = staged ? 1 : 0;
  own.slab = {};
  own.ticket = ticket;
  if (buffer != nullptr) {
    const auto found = world_->own_slabs().find(buffer, 1);
    SHOAL_CHECK(found.has_value());
    own.slab = found->place;
    own.offset = found->offset;
  }
  const uint64_t phase = own.phase.load() + 1;
  move_on(phase);
  wait_until_all_reached(phase, arrive_spins_);
}

Ticket ShmBoard::ticket_of(int rank) const { return seat(rank).ticket; }
bool ShmBoard::staged(int rank) const { return seat(rank).staged != 0; }

const std::byte* ShmBoard::buffer_of(int rank) {
  std::shared_ptr<PeerMapping>& mapping = reading_.at(static_cast<size_t>(rank));
  const Seat& peer = seat(rank);
  const int global = members_.global(rank);
  if (!mapping) mapping = world_->peer_memory().find(global, peer.slab);
  if (!mapping) {
    const std::string how = fmt::format("its memory cannot be mapped: {}", std::strerror(errno));
    const std::string dead = world_->dead_peer();
    const Failure failure{members_.global(), at_, dead.empty() ? cause_died(global, how) : dead};
    fail(failure);
    throw error_of(world_->failure().value_or(failure), members_.global(), at_);
  }
  return mapping->data() + peer.offset;
}

void ShmBoard::depart() {
  for (auto& mapping : reading_) mapping.reset();
  const uint64_t phase = seat(rank()).phase.load() + 1;
  move_on(phase);
  wait_until_all_reached(phase, depart_spins_);
}

void ShmBoard::withdraw() noexcept {
  for (auto& mapping : reading_) mapping.reset();
  move_on(seat(rank()).phase.load() + 1);
}

bool ShmBoard::reaches(const std::byte* data, size_t nbytes) {
  return world_->own_slabs().find(data, nbytes).has_value();
}

std::byte* ShmBoard::staging(size_t nbytes) {
  if (!staging_ || staging_->nbytes() < nbytes) {
    staging_.reset();
    staging_ = world_->allocate(nbytes, ledger_, MemoryKind::staging);
  }
  return staging_->data();
}

std::shared_ptr<Slab> ShmBoard::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return world_->allocate(nbytes, std::move(ledger), kind);
}

std::unique_ptr<Board> ShmBoard::open(const std::string& name, const Members& members) {
  return std::make_unique<ShmBoard>(world_, members, name);
}

void ShmBoard::fail(const Failure& failure) {
  world_->fail(failure);
  ring();
}

void ShmBoard::leave() {
  seat(rank()).left.store(1);
  ring();
}

}  // namespace shoal
