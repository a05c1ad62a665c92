// See cuda_process_carrier.h.
#include "comm/gpu/cuda_process_carrier.h"

#include "comm/gpu/cuda_staged_carrier.h"
#include "comm/gpu/gpu_route.h"
#include "comm/gpu/gpus_of_ranks.h"
#include "comm/gpu/nccl_carrier.h"

namespace shoal {

std::unique_ptr<Carrier> make_cuda_process_carrier(std::unique_ptr<Group> host, const ComputeStream& compute,
                                                   const CudaProcessOptions& options) {
  const GpuRoute route = choose_gpu_route(gpu_seats_of_ranks(*host, compute.device), options.only_nccl);
  if (route == GpuRoute::staged) return std::make_unique<CudaStagedCarrier>(std::move(host), compute, options.name);
  return std::make_unique<NcclCarrier>(std::move(host), compute, options.name, options.reduce);
}

}  // namespace shoal
