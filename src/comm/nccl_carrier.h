// Collectives of GPUs through NCCL, on this channel's own stream: one communicator a channel, made through the hosts.
// A reduction is NCCL's own sum in the dtype on the wire; it is the same call at every stage, so stages agree, but its
// order is NCCL's, not the contract's ordered mean.
#pragma once

#include <atomic>
#include <memory>

#include "comm/cuda_carrier.h"
#include "comm/nccl_library.h"

namespace shoal {

class NcclCarrier final : public CudaCarrier {
 public:
  // Every rank makes one, over a host channel of its own.
  NcclCarrier(std::unique_ptr<Group> host, const ComputeStream& compute);
  ~NcclCarrier() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_gather(const Ticket& ticket, const AllGather& args) override;
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  std::unique_ptr<Carrier> channel(const std::string& name) override;
  void interrupt() override {}
  void abort(const std::string& reason) override;
  std::string channel_name() const override { return ""; }
  std::string transport_name() const override { return "GPU, NCCL"; }

 private:
  void check(int result, const char* call);

  std::unique_ptr<Group> host_;
  const NcclLibrary& nccl_;
  NcclComm comm_ = nullptr;
  std::atomic<bool> failed_{false};  // abort() comes from other threads
};

}  // namespace shoal
