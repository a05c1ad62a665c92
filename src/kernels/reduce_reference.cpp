// The contract of the ordered sums, one element at a time. The other versions must give these bits.
#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

void plain_ordered_mean(const OrderedMean& a) {
  for (int64_t i = 0; i < a.numel; ++i) {
    float sum = a.pre * load_element(a.sources[0], a.source_dtype, i);
    for (int k = 1; k < a.source_count; ++k) sum = sum + a.pre * load_element(a.sources[k], a.source_dtype, i);
    float mean = a.post * sum;
    if (a.accumulate) mean = load_element(a.out, a.out_dtype, i) + mean;
    store_element(a.out, a.out_dtype, i, mean);
  }
}

void plain_sum_squares(const void* values, DType dtype, int64_t numel, double* sums) {
  for (int64_t begin = 0; begin < numel; begin += kNormBlock) {
    const int64_t end = begin + kNormBlock < numel ? begin + kNormBlock : numel;
    double lanes[8] = {};
    for (int64_t i = begin; i < end; ++i) {
      const double x = load_element(values, dtype, i);  // the square of an fp32 value is exact in fp64
      lanes[(i - begin) % 8] += x * x;
    }
    double sum = lanes[0];
    for (int j = 1; j < 8; ++j) sum += lanes[j];
    sums[begin / kNormBlock] = sum;
  }
}

}  // namespace

ReduceKernels reduce_reference() { return {plain_ordered_mean, plain_sum_squares}; }

}  // namespace shoal::kernels
