// The collectives of a world of one on a GPU: copies and roundings, so that they mean the same as in a larger world.
#pragma once

#include "comm/cuda_carrier.h"

namespace shoal {

class CudaSingleCarrier final : public CudaCarrier {
 public:
  using CudaCarrier::CudaCarrier;

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(const Ticket& ticket, const AllGather& args) override;
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  void broadcast(const Ticket&, const Broadcast&) override {}
  void barrier(const Ticket&) override {}
  std::unique_ptr<Carrier> channel(const std::string&) override {
    return std::make_unique<CudaSingleCarrier>(compute());
  }
  void interrupt() override {}
  void abort(const std::string&) override {}
  std::string channel_name() const override { return ""; }
  std::string transport_name() const override { return "GPU, one rank"; }
};

}  // namespace shoal
