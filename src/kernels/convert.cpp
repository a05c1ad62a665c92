// The doors of convert.h: run the version that this machine uses.
#include "kernels/convert.h"

#include "base/check.h"
#include "kernels/isa.h"

namespace shoal::kernels {

void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  SHOAL_CHECK_GE(numel, 0);
  active_kernels().convert.convert(in, in_dtype, out, out_dtype, numel);
}

void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  SHOAL_CHECK_GE(numel, 0);
  active_kernels().convert.add(in, in_dtype, out, out_dtype, numel);
}

void split(const float* master, void* weight, void* remainder, int64_t numel) {
  SHOAL_CHECK_GE(numel, 0);
  active_kernels().convert.split(master, weight, remainder, numel);
}

void join(const void* weight, const void* remainder, float* master, int64_t numel) {
  SHOAL_CHECK_GE(numel, 0);
  active_kernels().convert.join(weight, remainder, master, numel);
}

}  // namespace shoal::kernels
