// Between processes: NCCL where it takes all ranks; else through host memory and the ranks' own way to talk there.
// Which of the two, gpu_route.h decides.
#pragma once

#include <memory>
#include <string>

#include "comm/gpu/cuda_carrier.h"

namespace shoal {

struct CudaProcessOptions {
  std::string name = {};  // of the channel, for messages
  bool only_nccl = false;
  Reduce reduce = Reduce::exact;
};

// `host` is a channel for this carrier alone. Every rank calls it.
std::unique_ptr<Carrier> make_cuda_process_carrier(std::unique_ptr<Group> host, const ComputeStream& compute,
                                                   const CudaProcessOptions& options = {});

}  // namespace shoal
