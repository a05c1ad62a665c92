// Collectives of GPUs through NCCL, on this channel's own stream: one communicator a channel, made through the hosts.
// A reduction is NCCL's own sum in the dtype on the wire; it is the same call at every stage, so stages agree, but its
// order is NCCL's, not the contract's ordered mean. An exchange is sends and receives in one group of calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "comm/gpu/cuda_hosted_carrier.h"
#include "comm/gpu/nccl_link.h"

namespace shoal {

class NcclCarrier final : public CudaHostedCarrier {
 public:
  // Every rank makes one, over a host channel of its own. `name` is for messages.
  NcclCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name = "",
              std::shared_ptr<CudaLane> lane = nullptr);
  ~NcclCarrier() override;

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void abort(const std::string& reason) override;

 protected:
  std::unique_ptr<Carrier> over(std::unique_ptr<Group> host, const std::string& name,
                                std::shared_ptr<CudaLane> lane) override;

 private:
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  std::shared_ptr<NcclLink> connect();
  void call(const Ticket& ticket, const char* name, const std::function<int(NcclComm)>& call);
  // What NCCL says to this rank alone; the first failure counts.
  void tell_others(const std::string& at, const Error& error);

  const NcclLibrary& nccl_;
  std::shared_ptr<NcclLink> link_;   // shared with the watchdog, which aborts it
  std::atomic<bool> failed_{false};  // abort() comes from other threads
};

}  // namespace shoal
