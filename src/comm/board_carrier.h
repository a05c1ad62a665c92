// The collectives over a Board. An all-gather is a copy of the peers' shards, a reduce-scatter one ordered pass over
// their slices, an all-reduce the two in turn.
//
// [Note: windows, strips and pieces]
// A rank offers a window: equal strips, one for each rank that reads (reduce-scatter) or a single one for all
// (all-gather). Memory that peers can reach is read where it is, in one round. If any rank's memory is out of reach,
// all go in rounds: round k covers the same piece of every strip, and that rank copies its piece of each strip into
// its staging memory first. The sum of each element is the same either way.
#pragma once

#include <functional>
#include <memory>

#include "comm/board.h"
#include "comm/carrier.h"

namespace shoal {

// After arrive(): throws, and fails the world, when a rank has come with another collective than this one.
void compare_tickets(Board& board, const Ticket& mine);

class BoardCarrier final : public Carrier {
 public:
  explicit BoardCarrier(std::unique_ptr<Board> board) : board_(std::move(board)) {}

  int rank() const override { return board_->rank(); }
  int size() const override { return board_->size(); }
  void all_gather(const Ticket& ticket, const AllGather& args) override;
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  std::unique_ptr<Carrier> channel(const std::string& name) override;
  std::unique_ptr<Carrier> device_carrier(const std::string& name, const ComputeStream& compute) override;
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void forget_peer_memory() override { board_->forget_peer_memory(); }
  void interrupt() override { board_->leave(); }
  void abort(const std::string& reason) override;
  std::shared_ptr<Fate> fate() const override { return board_->fate(); }
  std::string channel_name() const override { return board_->channel_name(); }
  std::string transport_name() const override { return board_->transport_name(); }
  std::shared_ptr<Ledger> ledger() const override { return board_->ledger(); }

 private:
  struct Window {
    const std::byte* data = nullptr;
    size_t nbytes = 0;        // of data; 0: this rank only reads
    size_t strip_nbytes = 0;  // the same on every rank; the last strips may be cut short by nbytes
    int strips = 1;
  };
  // What a round may read: `nbytes` at `begin` of each strip.
  struct Round {
    size_t begin = 0;
    size_t nbytes = 0;
    size_t piece_nbytes = 0;
    size_t strip_nbytes = 0;
  };
  void exchange(const Ticket& ticket, const Window& window, const std::function<void(const Round&)>& read);
  void stage(const Window& window, const Round& round);
  const std::byte* source(int rank, int strip, const Round& round);

  std::unique_ptr<Board> board_;
};

}  // namespace shoal
