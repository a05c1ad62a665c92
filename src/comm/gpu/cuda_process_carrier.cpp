// See cuda_process_carrier.h.
#include "comm/gpu/cuda_process_carrier.h"

#include <set>
#include <string>
#include <vector>

#include "comm/gpu/cuda_staged_carrier.h"
#include "comm/gpu/gpus_of_ranks.h"
#include "comm/gpu/nccl_carrier.h"
#include "shoal/error.h"

namespace shoal {

namespace {

bool each_has_its_own_gpu(Group& host, int device) {
  const std::vector<std::string> gpus = gpus_of_ranks(host, device);
  return std::set<std::string>(gpus.begin(), gpus.end()).size() == gpus.size();
}

}  // namespace

std::unique_ptr<Carrier> make_cuda_process_carrier(std::unique_ptr<Group> host, const ComputeStream& compute,
                                                   const std::string& name) {
  if (each_has_its_own_gpu(*host, compute.device)) return std::make_unique<NcclCarrier>(std::move(host), compute, name);
  return std::make_unique<CudaStagedCarrier>(std::move(host), compute, name);
}

}  // namespace shoal
