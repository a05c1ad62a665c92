// The collectives of a world of one on a GPU: copies and roundings, so that they mean the same as in a larger world.
#pragma once

#include "comm/gpu/cuda_carrier.h"

namespace shoal {

class CudaSingleCarrier final : public CudaCarrier {
 public:
  explicit CudaSingleCarrier(const ComputeStream& compute, std::shared_ptr<CudaLane> lane = nullptr);

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket&, const Broadcast&) override {}
  void barrier(const Ticket&) override {}

 protected:
  std::unique_ptr<Carrier> open(const std::string& name, const Members& members, Lane lane) override;
};

}  // namespace shoal
