// Collectives of a GPU's memory through host memory and any Group of hosts: bytes are copied down, travel there, and
// are copied up. The worker waits for the GPU; the rank does not. Right everywhere, and no faster than the wires to the
// host.
#pragma once

#include <memory>

#include "comm/cuda_carrier.h"

namespace shoal {

class CudaStagedCarrier final : public CudaCarrier {
 public:
  CudaStagedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_gather(const Ticket& ticket, const AllGather& args) override;
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  std::unique_ptr<Carrier> channel(const std::string& name) override;
  void interrupt() override {
  }  // a collective in flight ends as the hosts' does: when the peers come, leave or are late
  void abort(const std::string& reason) override { host_->abort(reason); }
  std::string channel_name() const override { return ""; }
  std::string transport_name() const override { return "GPU, through " + host_->transport_name(); }

 private:
  std::byte* host_memory(std::shared_ptr<Slab>& slab, size_t nbytes);

  std::unique_ptr<Group> host_;
  std::shared_ptr<Slab> sent_, received_;  // kept from call to call
};

}  // namespace shoal
