// See cuda_process_carrier.h.
#include "comm/cuda_process_carrier.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "comm/cuda_staged_carrier.h"
#include "comm/nccl_carrier.h"
#include "shoal/error.h"

namespace shoal {

namespace {

constexpr size_t kIdentityNbytes = 64;

bool each_has_its_own_gpu(Group& host, int device) {
  std::string own = cuda::identity_of(device);
  own.resize(kIdentityNbytes, '\0');
  std::string all(kIdentityNbytes * static_cast<size_t>(host.size()), '\0');
  host.all_gather({.subject = {"say which GPU", "all ranks"},
                   .shard = own.data(),
                   .whole = all.data(),
                   .shard_nbytes = kIdentityNbytes,
                   .keep = nullptr})
      .wait();
  std::set<std::string> different;
  for (size_t rank = 0; rank < static_cast<size_t>(host.size()); ++rank) {
    different.insert(all.substr(rank * kIdentityNbytes, kIdentityNbytes));
  }
  return different.size() == static_cast<size_t>(host.size());
}

}  // namespace

std::unique_ptr<Carrier> make_cuda_process_carrier(std::unique_ptr<Group> host, const ComputeStream& compute) {
  if (each_has_its_own_gpu(*host, compute.device)) return std::make_unique<NcclCarrier>(std::move(host), compute);
  return std::make_unique<CudaStagedCarrier>(std::move(host), compute);
}

}  // namespace shoal
