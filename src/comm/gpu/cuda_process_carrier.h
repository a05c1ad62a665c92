// Between processes: NCCL when every rank has a GPU of its own; else, as NCCL takes no two ranks on one GPU, through
// host memory and the ranks' own way to talk there.
#pragma once

#include <memory>
#include <string>

#include "comm/gpu/cuda_carrier.h"

namespace shoal {

// `host` is a channel for this carrier alone; `name` is for messages. Every rank calls it.
std::unique_ptr<Carrier> make_cuda_process_carrier(std::unique_ptr<Group> host, const ComputeStream& compute,
                                                   const std::string& name = "");

}  // namespace shoal
