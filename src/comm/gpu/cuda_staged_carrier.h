// Collectives of a GPU's memory through host memory and any Group of hosts: bytes are copied down, travel there, and
// are copied up; sums are made by the hosts. The worker waits for the GPU; the rank does not. Right everywhere, and no
// faster than the bus to the host.
#pragma once

#include <memory>
#include <string>

#include "comm/gpu/cuda_hosted_carrier.h"

namespace shoal {

// A collective in flight ends as the hosts' does: when the peers come, leave or are late.
class CudaStagedCarrier final : public CudaHostedCarrier {
 public:
  CudaStagedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name = "",
                    std::shared_ptr<CudaLane> lane = nullptr);

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;

 protected:
  std::unique_ptr<Carrier> over(std::unique_ptr<Group> host, const std::string& name,
                                std::shared_ptr<CudaLane> lane) override;

 private:
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  std::byte* host_memory(std::shared_ptr<Slab>& slab, size_t nbytes);

  std::shared_ptr<Slab> sent_, received_, open_;  // kept from call to call
};

}  // namespace shoal
