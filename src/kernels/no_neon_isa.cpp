// Stands in for isa_neon.cpp on machines that are not aarch64.
#include "kernels/isa_parts.h"

namespace shoal::kernels {

IsaVersion neon_version() { return {nullptr, "this build is for x86-64, and NEON is aarch64's"}; }

}  // namespace shoal::kernels
