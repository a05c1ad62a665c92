// The doors of reduce.h: check the arguments once, then run the version that this machine uses.
#include "kernels/reduce.h"

#include "base/check.h"
#include "kernels/isa.h"

namespace shoal::kernels {

void ordered_mean(const OrderedMean& args) {
  SHOAL_CHECK_GE(args.numel, 0);
  SHOAL_CHECK_GE(args.source_count, 1);
  active_kernels().reduce.ordered_mean(args);
}

void sum_squares(const void* values, DType dtype, int64_t numel, double* sums) {
  SHOAL_CHECK_GE(numel, 0);
  active_kernels().reduce.sum_squares(values, dtype, numel, sums);
}

}  // namespace shoal::kernels
