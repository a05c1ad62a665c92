// Ranks as threads of one process: one mutex, one condition variable, and pointers as they are.
// Made by make_thread_groups (thread_groups.cpp); used by tests and by programs that play several ranks.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/host/board.h"

namespace shoal {

// What the ranks of one world share.
struct ThreadWorld {
  struct Seat {
    uint64_t phase = 0;  // odd: arrived at collective phase / 2; even: departed from it
    Ticket ticket;
    const std::byte* buffer = nullptr;
    bool left = false;
  };
  using Room = std::vector<Seat>;  // one a channel, one seat a member
  // A rank that waits for those of a room who have not reached its phase.
  struct Wait {
    const Room* room = nullptr;
    const Members* members = nullptr;
    uint64_t phase = 0;
  };

  explicit ThreadWorld(Timeout timeout) : timeout(timeout) {}
  // The next of that name for these ranks.
  std::shared_ptr<Room> room(const std::string& name, const Members& members);
  void fail(const Failure& found);
  // For whom a rank waits now, in whatever room. The caller holds the mutex.
  std::vector<int> waits_of(int rank) const;

  const Timeout timeout;
  std::mutex mutex;  // of all that follows
  std::condition_variable changed;
  std::optional<Failure> failure;
  std::map<std::string, std::shared_ptr<Room>> rooms;        // by key and how many came before it
  std::map<std::pair<std::string, int>, int> rooms_of_rank;  // channels of a key that a rank has opened
  std::list<Wait> waits;                                     // of all ranks
};

class ThreadBoard final : public Board {
 public:
  ThreadBoard(std::shared_ptr<ThreadWorld> world, const Members& members, const std::string& channel_name);

  const Members& members() const override { return members_; }
  std::string channel_name() const override { return channel_name_; }
  void arrive(const Ticket& ticket, const std::byte* buffer, bool staged) override;
  Ticket ticket_of(int rank) const override { return room_->at(rank).ticket; }
  bool staged(int) const override { return false; }
  const std::byte* buffer_of(int rank) override { return room_->at(rank).buffer; }
  void depart() override;
  void withdraw() noexcept override;
  bool in_one_process() const override { return true; }
  bool reaches(const std::byte*, size_t) override { return true; }
  std::byte* staging(size_t) override;
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void forget_peer_memory() override {}
  std::shared_ptr<Ledger> ledger() const override { return ledger_; }
  std::unique_ptr<Board> open(const std::string& name, const Members& members) override;
  void fail(const Failure& failure) override;
  void leave() override;
  std::shared_ptr<Fate> fate() const override;
  std::string transport_name() const override { return "threads"; }

 private:
  bool all_reached(uint64_t phase) const;
  std::optional<Failure> trouble(const std::string& at) const;
  std::vector<int> to_blame(const std::vector<int>& missing) const;

  std::shared_ptr<ThreadWorld> world_;  // shared by the boards of all ranks and channels
  const Members members_;
  const std::string channel_name_;
  std::shared_ptr<ThreadWorld::Room> room_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
};

}  // namespace shoal
