// What carriers of GPUs in several processes have in common: beneath them is a Group of the hosts, for this carrier
// alone, through which the ranks meet, share notes, and hear of failures.
#pragma once

#include <memory>
#include <string>

#include "comm/gpu/cuda_carrier.h"
#include "comm/group/full_group.h"

namespace shoal {

class CudaHostedCarrier : public CudaCarrier, protected OwnSums {
 public:
  // Of a channel of that name. `way`: how its bytes travel, for transport_name(); empty: through the hosts.
  CudaHostedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name,
                    const std::string& way, std::shared_ptr<CudaLane> lane);

  OwnSums* own_sums() override { return this; }
  void barrier(const Ticket& ticket) final;
  std::unique_ptr<Carrier> channel(const std::string& name) final;
  std::unique_ptr<Carrier> split(const Ticket& ticket, const std::string& name, const Parts& parts) final;
  void abort(const std::string& reason) override { host_->abort(reason); }

 protected:
  FullGroup& host() const { return full(*host_); }
  // The same kind of carrier over another group of hosts.
  virtual std::unique_ptr<Carrier> over(std::unique_ptr<Group> host, const std::string& name,
                                        std::shared_ptr<CudaLane> lane) = 0;

 private:
  std::unique_ptr<Group> host_;
};

}  // namespace shoal
