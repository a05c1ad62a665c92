// Ranks as processes of one host: seats in a shared segment, a futex to wait on, and buffers read where they lie.
//
// [Note: the bell]
// A rank that moves on writes its seat, then its phase, then counts the segment's bell up, and wakes the sleepers if
// there are any. A rank that waits announces itself as a sleeper, reads the bell, looks at the phases, and sleeps only
// while the bell still has that value. So whatever happened after it looked, it does not sleep over it.
// Sleeps are short, and between them it looks for ranks that died, left, or wrote a failure down.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/host/board.h"
#include "comm/host/shm_world.h"

namespace shoal {

class ShmBoard final : public Board {
 public:
  // Blocks until the first of the members has opened the same channel.
  ShmBoard(std::shared_ptr<ShmWorld> world, const Members& members, const std::string& channel_name);
  // The main channel of all ranks.
  explicit ShmBoard(const std::shared_ptr<ShmWorld>& world)
      : ShmBoard(world, Members::all(world->size(), world->rank(), world->hosts()), "") {}
  ~ShmBoard() override;

  const Members& members() const override { return members_; }
  std::string channel_name() const override { return channel_name_; }
  void arrive(const Ticket& ticket, const std::byte* buffer, bool staged) override;
  Ticket ticket_of(int rank) const override;
  bool staged(int rank) const override;
  const std::byte* buffer_of(int rank) override;
  void depart() override;
  void withdraw() noexcept override;
  bool reaches(const std::byte* data, size_t nbytes) override;
  std::byte* staging(size_t nbytes) override;
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void forget_peer_memory() override { world_->peer_memory().forget_all(); }
  std::shared_ptr<Ledger> ledger() const override { return ledger_; }
  std::unique_ptr<Board> open(const std::string& name, const Members& members) override;
  void fail(const Failure& failure) override;
  void leave() override;
  std::shared_ptr<Fate> fate() const override { return world_; }
  std::string transport_name() const override { return "shared memory"; }

 private:
  struct Seat;
  struct Room;
  Room& room() const;
  Seat& seat(int rank) const;
  void ring();
  void move_on(uint64_t phase);
  bool all_reached(uint64_t phase) const;
  void wait_until_all_reached(uint64_t phase, int& spins);
  std::vector<int> missing(uint64_t phase) const;  // their numbers in the world
  std::optional<Failure> trouble(uint64_t phase, Deadline deadline);
  void note_wait(uint64_t phase);

  std::shared_ptr<ShmWorld> world_;  // shared by the boards of this rank's channels
  const Members members_;
  const std::string channel_name_;
  SharedSegment segment_;
  std::string at_;         // what this rank is doing, for messages
  int arrive_spins_ = 16;  // how long spinning paid off lately
  int depart_spins_ = 16;
  WaitNote wait_note_;
  std::vector<std::shared_ptr<PeerMapping>> reading_;  // the peers' memory in use until depart
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::shared_ptr<Slab> staging_;
};

}  // namespace shoal
