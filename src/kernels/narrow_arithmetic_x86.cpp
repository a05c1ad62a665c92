// See narrow_arithmetic.h; on x86-64. The compiler's own names of these features differ with its version: cpuid does
// not.
#include <cpuid.h>

#include "kernels/narrow_arithmetic.h"

namespace shoal::kernels {
namespace {

// AMX is found only beside AVX-512 with bf16, so that one bit a dtype tells. Asking for avx512f also asks whether the
// operating system saves the wide registers.
bool has_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & (1u << 5)) != 0;
}

bool has_fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & (1u << 23)) != 0;
}

}  // namespace

std::string why_no_arithmetic(DType dtype) {
  if (dtype == DType::bf16 && !has_bf16()) return "this processor has no bf16 arithmetic";
  if (dtype == DType::f16 && !has_fp16()) return "this processor has no fp16 arithmetic";
  return "";
}

}  // namespace shoal::kernels
