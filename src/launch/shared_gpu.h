// What ranks that share one GPU get in their environment, so that NCCL takes them (see comm/gpu/gpu_route.h), and
// whether MPS runs, which lets their kernels run side by side.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace shoal::launch {

// [Note: a kernel that waits never keeps out the one it waits for]
// A kernel of NCCL waits on the GPU for its peers, which here run on the same GPU. Under MPS they are resident
// together, so those of all ranks and channels must fit at one time: each gets few blocks. Without MPS processes take
// turns, and a kernel that waits loses its turn. Streams of one process that share a queue of the GPU wait for each
// other too: it gets many queues. But MPS has about 100 for all its processes together and refuses who comes after
// (found on an H200: 3 processes of 32 start and a 4th does not, 7 of 16 and not 8, 8 of 8), so the ranks share 64.

// The variables of one rank. What the user has set already stays, but for the ids and the one visible GPU: the first of
// those that are. `given` reads the launcher's environment: the value, or null.
std::map<std::string, std::string> shared_gpu_environment(int rank, int ranks,
                                                          const std::function<const char*(const char*)>& given);

// Whether the control daemon of MPS runs for the processes that get this CUDA_MPS_PIPE_DIRECTORY; null or "": CUDA's
// own default, /tmp/nvidia-mps.
bool mps_runs(const char* pipe_directory);

// One line to say before ranks share a GPU; empty where MPS runs.
std::string shared_gpu_notice(int ranks, bool mps);

}  // namespace shoal::launch
