// The device on which a model lives and computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace shoal {

// "cpu"; "cuda", the GPU of this process (LOCAL_RANK, or its equal under mpirun and srun, modulo the GPUs that there
// are); "cuda:1"; or "auto", which is "cuda" where there is a GPU and "cpu" elsewhere. Makes the GPU the calling
// thread's and loads torch's CUDA library; call it before anything else asks torch for CUDA.
at::Device open_device(const std::string& text);

// Has torch use algorithms that give the same bits in every run on this device; attention and embeddings do not by
// themselves on a GPU. Call it before anything is computed there.
void make_deterministic(at::Device device);

// Has torch take cuDNN's attention where it can: on Hopper it is faster than the one that torch takes by itself. It is
// not deterministic, so make_deterministic rules it out.
void prefer_cudnn_attention();

// Whether torch may round the operands of fp32 matrix products on GPUs to tf32; it may not unless told.
void allow_tf32(bool allowed);

}  // namespace shoal
