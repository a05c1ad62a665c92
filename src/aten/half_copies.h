// Copies of whole tensors between fp16 and fp32 on the CPU. torch's own take some 2 ns an element where a CPU has the
// conversion as an instruction, so that norms and losses, which torch computes in fp32, take as long as products.
#pragma once

namespace shoal::aten {

// From here on this process makes such copies by our own conversions; the bits are the same. See
// [Note: kernels of torch that are replaced] in fp32_products.cpp. A second call changes nothing.
void convert_half_quickly();

}  // namespace shoal::aten
