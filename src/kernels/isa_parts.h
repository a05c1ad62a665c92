// The doors between isa.cpp and the files that one machine builds and another does not. Inside kernels/ only.
#pragma once

#include "kernels/isa.h"

namespace shoal::kernels {

// isa_x86.cpp or no_x86_isa.cpp; isa_neon.cpp or no_neon_isa.cpp. Null, and the reason, when it cannot run here.
struct IsaVersion {
  const Kernels* kernels = nullptr;
  std::string reason;
};
IsaVersion neon_version();
IsaVersion avx2_version();
IsaVersion avx512_version();

// <family>_<isa>.cpp.
UpdateKernels update_reference();
UpdateKernels update_neon();
UpdateKernels update_avx2();
UpdateKernels update_avx512();
ReduceKernels reduce_reference();
ReduceKernels reduce_neon();
ReduceKernels reduce_avx2();
ReduceKernels reduce_avx512();
ConvertKernels convert_reference();
ConvertKernels convert_neon();
ConvertKernels convert_avx2();
ConvertKernels convert_avx512();
BlockKernels blocks_reference();
BlockKernels blocks_neon();
BlockKernels blocks_avx2();
BlockKernels blocks_avx512();

}  // namespace shoal::kernels
