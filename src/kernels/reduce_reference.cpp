// The contract of the ordered sums, one element at a time. The other versions must give these bits.
#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

void plain_ordered_fold(const OrderedFold& a) {
  for (int64_t i = 0; i < a.numel; ++i) {
    bool has_sum = a.carry != 0, has_open = a.before > 0;
    float sum = has_sum ? a.carry * load_element(a.out, a.out_dtype, i) : 0;
    float open = has_open ? a.open[i] : 0;
    const auto close = [&] {
      sum = has_sum ? sum + open : open;
      has_sum = true;
      has_open = false;
    };
    for (int k = 0; k < a.source_count; ++k) {
      const float leaf = load_element(a.sources[k], a.source_dtype, i);
      if (a.group == 0) {
        sum = has_sum ? sum + leaf : leaf;
        has_sum = true;
        continue;
      }
      open = has_open ? open + leaf : leaf;
      has_open = true;
      if ((a.before + k + 1) % a.group == 0) close();
    }
    if (has_open && a.closes) close();
    if (has_open) a.open[i] = open;
    if (!has_sum) continue;
    uint32_t rounded = 0;
    store_element(&rounded, a.rounding, 0, a.post * sum);
    store_element(a.out, a.out_dtype, i, load_element(&rounded, a.rounding, 0));
  }
}

double plain_run(const void* values, DType dtype, int64_t begin, int64_t end) {
  double lanes[8] = {};
  for (int64_t i = begin; i < end; ++i) {
    const double x = load_element(values, dtype, i);  // the square of an fp32 value is exact in fp64
    lanes[(i - begin) % 8] += x * x;
  }
  for (int half = 4; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

void plain_sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) {
  const int64_t end_run = first_run + runs_of(numel);
  double runs[kBlockRuns];
  for (int64_t run = first_run; run < end_run;) {
    const int64_t block_end = (run / kBlockRuns + 1) * kBlockRuns;
    const int64_t end = block_end < end_run ? block_end : end_run;
    for (int64_t i = run; i < end; ++i) {
      const int64_t begin = (i - first_run) * kRunNumel, after = begin + kRunNumel;
      runs[i - run] = plain_run(values, dtype, begin, after < numel ? after : numel);
    }
    pieces += write_pieces(runs, run, end, pieces);
    run = end;
  }
}

}  // namespace

ReduceKernels reduce_reference() { return {plain_ordered_fold, plain_sum_squares}; }

}  // namespace shoal::kernels
