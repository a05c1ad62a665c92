// The doors of reduce.h: check the arguments once, then run the version that this machine uses.
#include "kernels/reduce.h"

#include "base/check.h"
#include "kernels/isa.h"

namespace shoal::kernels {

void check(const OrderedFold& args) {
  SHOAL_CHECK_GE(args.numel, 0);
  SHOAL_CHECK_GE(args.source_count, 1);
  SHOAL_CHECK(args.rounding == args.out_dtype || args.out_dtype == DType::f32, "(rounding to {} in {})",
              name_of(args.rounding), name_of(args.out_dtype));
  if (args.group == 0) return;
  SHOAL_CHECK(args.group > 0 && args.before >= 0 && args.before < args.group, "(a group of {} after {})", args.group,
              args.before);
  const bool ends_open = !args.closes && (args.before + args.source_count) % args.group != 0;
  SHOAL_CHECK(args.open != nullptr || (args.before == 0 && !ends_open), "(an open group without memory)");
}

void ordered_fold(const OrderedFold& args) {
  check(args);
  active_kernels().reduce.ordered_fold(args);
}

void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) {
  SHOAL_CHECK_GE(numel, 0);
  SHOAL_CHECK_GE(first_run, 0);
  active_kernels().reduce.sum_squares(values, dtype, numel, first_run, pieces);
}

void sum_pieces(const PieceSums& range) { shoal::sum_pieces(range.pieces, range.begin, range.end, range.tops); }

}  // namespace shoal::kernels
