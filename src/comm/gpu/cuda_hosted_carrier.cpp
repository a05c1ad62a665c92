// See cuda_hosted_carrier.h.
#include "comm/gpu/cuda_hosted_carrier.h"

#include <utility>

namespace shoal {

namespace {

Carrier::About about_hosts(Group& host, const std::string& name, const std::string& way) {
  const int own = host.members()[static_cast<size_t>(host.rank())];
  const std::string how = way.empty() ? "through " + host.transport_name() : way;
  return {Members(host.members(), own, "", full(host).hosts()), name, "GPU, " + how, full(host).fate()};
}

}  // namespace

CudaHostedCarrier::CudaHostedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name,
                                     const std::string& way, std::shared_ptr<CudaLane> lane)
    : CudaCarrier(about_hosts(*host, name, way), compute, std::move(lane)), host_(std::move(host)) {}

void CudaHostedCarrier::barrier(const Ticket& ticket) { host_->barrier({"meet for", ticket.subject}).wait(); }

std::unique_ptr<Carrier> CudaHostedCarrier::channel(const std::string& name) {
  return over(host_->channel(name), name, lane_for(Lane::own));
}

// The hosts find out whether all ranks want the same parts.
std::unique_ptr<Carrier> CudaHostedCarrier::split(const Ticket&, const std::string& name, const Parts& parts) {
  const std::string full_name = channel_name().empty() ? name : name + " of " + channel_name();
  return over(host_->split(name, parts), full_name, lane_for(Lane::shared));
}

}  // namespace shoal
