// Stands in for isa_x86.cpp on machines that are not x86-64.
#include "kernels/isa_parts.h"

namespace shoal::kernels {

IsaVersion avx2_version() { return {nullptr, "this build is for aarch64, and AVX2 is x86-64's"}; }
IsaVersion avx512_version() { return {nullptr, "this build is for aarch64, and AVX-512 is x86-64's"}; }

}  // namespace shoal::kernels
