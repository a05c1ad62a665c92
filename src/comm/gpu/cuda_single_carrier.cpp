// See cuda_single_carrier.h.
#include "comm/gpu/cuda_single_carrier.h"

#include <utility>

namespace shoal {

CudaSingleCarrier::CudaSingleCarrier(const ComputeStream& compute, std::shared_ptr<CudaLane> lane)
    : CudaCarrier({Members::all(1, 0), "", "GPU, one rank", nullptr}, compute, std::move(lane)) {}

void CudaSingleCarrier::exchange(const Ticket&, const Strips& strips, const Take& take) {
  const void* own = strips.data;
  if (strips.nbytes > 0) take({0, strips.nbytes, &own});
}

void CudaSingleCarrier::all_gather(const Ticket&, const Gather& args) {
  if (args.own != args.whole) queue().copy(args.whole, args.own, args.whole_nbytes);
}

std::unique_ptr<Carrier> CudaSingleCarrier::open(const std::string&, const Members&, Lane lane) {
  return std::make_unique<CudaSingleCarrier>(compute(), lane_for(lane));
}

}  // namespace shoal
