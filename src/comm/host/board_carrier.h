// A Carrier over a Board: ranks read each other's memory. An all-gather is a copy of the peers' strips; an exchange
// hands over pointers to them.
//
// [Note: windows, strips and pieces]
// A rank offers a window: equal strips, one for each rank that reads (exchange) or a single one for all (all-gather).
// Memory that peers can reach is read where it is, in one round. If any rank's memory is out of reach, all go in
// rounds: round k covers the same piece of every strip, and that rank copies its piece of each strip into its staging
// memory first.
#pragma once

#include <functional>
#include <memory>

#include "comm/group/carrier.h"
#include "comm/host/board.h"

namespace shoal {

// After arrive(): throws, and fails the world, when a rank has come with another collective than this one.
void compare_tickets(Board& board, const Ticket& mine);

class BoardCarrier final : public Carrier {
 public:
  explicit BoardCarrier(std::unique_ptr<Board> board);

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  std::shared_ptr<Board> open_board_of_gpus(const std::string& name) override;
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void forget_peer_memory() override { board_->forget_peer_memory(); }
  void interrupt() override { board_->leave(); }

 protected:
  std::unique_ptr<Carrier> open(const std::string& name, const Members& members, Lane lane) override;

 private:
  // What a round may read: `nbytes` at `begin` of each strip.
  struct Round {
    size_t begin = 0;
    size_t nbytes = 0;
    size_t piece_nbytes = 0;
    size_t strip_nbytes = 0;
  };
  void meet(const Ticket& ticket, const Strips& window, const std::function<void(const Round&)>& read);
  void stage(const Strips& window, const Round& round);
  const std::byte* source(int rank, int strip, const Round& round);

  std::unique_ptr<Board> board_;
};

// What a carrier over a board says of itself.
Carrier::About about_board(const Board& board, const std::string& transport_name);

}  // namespace shoal
