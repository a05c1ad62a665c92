// The NEON version as a whole. NEON and its fp16 conversions are part of every aarch64 CPU: nothing to detect.
#include "kernels/isa_parts.h"

namespace shoal::kernels {

IsaVersion neon_version() {
  static const Kernels kernels{Isa::neon, update_neon(), reduce_neon(), convert_neon(), blocks_neon()};
  return {&kernels, ""};
}

}  // namespace shoal::kernels
