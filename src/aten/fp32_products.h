// Products of bf16 and fp16 matrices on a CPU that has no arithmetic for them, as torch would compute them on one that
// has: from 16-bit values, summed in fp32, rounded once. Called by the engine before the first pass.
#pragma once

#include <c10/core/ScalarType.h>

namespace shoal::aten {

// From here on this process's products of that dtype on the CPU (mm, addmm, addmv, bmm, baddbmm, the fused attention,
// forward and backward) are made in fp32. See [Note: kernels of torch that are replaced]. A second call changes
// nothing.
void make_products_in_fp32(c10::ScalarType dtype);

}  // namespace shoal::aten
