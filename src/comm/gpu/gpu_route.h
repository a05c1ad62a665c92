// By which way memory of GPUs travels between processes. Pure: every rank knows the same of all, so all decide alike.
//
// [Note: which ranks NCCL takes]
// NCCL takes no two ranks of one host on one GPU. It knows hosts by NCCL_HOSTID, where that is set: ranks on one GPU
// whose ids differ are ranks of different hosts to it, and talk over sockets. `shoal launch --share-gpu` sets the ids.
#pragma once

#include <string>
#include <vector>

namespace shoal {

// Where a rank sits.
struct GpuSeat {
  int rank = 0;         // its number in the world
  std::string gpu;      // equal where two ranks share a GPU
  std::string host_id;  // its NCCL_HOSTID; empty: not set
};

enum class GpuRoute {
  nccl,   // from GPU to GPU
  staged  // through host memory, and as the hosts talk
};

// NCCL where it takes all ranks. Throws shoal::Error where it does not and `only_nccl` will do.
GpuRoute choose_gpu_route(const std::vector<GpuSeat>& seats, bool only_nccl);

}  // namespace shoal
