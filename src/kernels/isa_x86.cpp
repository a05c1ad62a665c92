// The AVX2 and AVX-512 versions as a whole, and whether this CPU and its operating system can run them.
// This file itself is compiled for plain x86-64.
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

// __builtin_cpu_supports asks cpuid and, for the wide registers, whether the operating system saves them (xgetbv).
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

IsaVersion avx2_version() {
  if (!has_avx2()) return {nullptr, "this CPU or its operating system lacks AVX2, FMA or F16C"};
  static const Kernels kernels{Isa::avx2, update_avx2(), reduce_avx2(), convert_avx2(), blocks_avx2()};
  return {&kernels, ""};
}

IsaVersion avx512_version() {
  if (!has_avx512()) return {nullptr, "this CPU or its operating system lacks AVX-512 F, BW, DQ or VL"};
  static const Kernels kernels{Isa::avx512, update_avx512(), reduce_avx512(), convert_avx512(), blocks_avx512()};
  return {&kernels, ""};
}

}  // namespace shoal::kernels
