// The collectives over Gloo's point-to-point transfers. Before the payload every rank sends its ticket to every other,
// so ranks that disagree are found. A reduce-scatter sends each slice to its owner, who receives the peers' slices
// piece by piece and sums them in rank order; an all-gather sends and receives straight from and into the slices.
// (Gloo's own all-gather and reduce-scatter copy, and sum in the order of arrival.)
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/gloo_world.h"
#include "kernels/reduce.h"

namespace shoal {

class GlooCarrier final : public Carrier {
 public:
  // Blocks until every rank has opened the same channel.
  GlooCarrier(std::shared_ptr<GlooWorld> world, const std::string& channel_name);

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  void all_gather(const Ticket& ticket, const AllGather& args) override;
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  std::unique_ptr<Carrier> channel(const std::string& name) override;
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void interrupt() override;
  void abort(const std::string& reason) override;
  std::shared_ptr<Fate> fate() const override { return fate_of(world_); }
  std::string channel_name() const override { return channel_name_; }
  std::string transport_name() const override { return "gloo"; }
  std::shared_ptr<Ledger> ledger() const override { return ledger_; }

 private:
  // What each rank r holds of the elements to be summed: slice r of `data` goes to rank r.
  struct Slices {
    const std::byte* data = nullptr;
    std::vector<size_t> begins;  // bytes, by rank
    std::vector<size_t> nbytes;
    size_t piece_nbytes = 0;  // of a slice
  };
  void carry(const Ticket& ticket, const std::function<void()>& payload);
  void compare_tickets(const Ticket& mine);
  void run(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives);
  void reduce_own_slice(const Slices& slices, kernels::OrderedMean mean);
  std::byte* staging(size_t nbytes);

  std::shared_ptr<GlooWorld> world_;  // shared by the carriers of this rank's channels
  const std::string channel_name_;
  GlooWorld::Channel channel_;
  std::atomic<bool> left_{false};
  std::string at_;
  Deadline deadline_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::shared_ptr<Slab> staging_;
};

}  // namespace shoal
