// The device on which a model lives and computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "shoal/dtype.h"

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

// Where a CPU has no arithmetic for bf16 or fp16, torch's products of them are many times slower than in fp32. From
// here on the process makes those of `dtype` in fp32, from 16-bit values with one rounding, and so do models and
// autograd. Returns what was changed, in words for the user ("bf16: products in fp32, this processor has no bf16
// arithmetic"), or nothing, where nothing had to be. An engine calls it for the precision of its config.
std::string prepare_products(at::Device device, DType dtype);

}  // namespace shoal
