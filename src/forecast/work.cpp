// See work.h.
//
// [Note: what an elementwise operation moves]
// Bytes are counted in widths of a token, of what fused kernels read and write: norms with their residual 9 hidden each
// way, rotary positions 2 of queries and keys each way, SwiGLU 3 of the feed-forward width forward and 6 back (gate and
// up, their gradients, the product again), GELU 2 and 3. On an H200 these bytes at 92 % of its bandwidth are the times
// of bench/results/model-ops-h200-2026-11-18.md to a few per cent. The same benchmark has torch's own operations: 3
// times as long for Llama's blocks, 1.6 times for GPT-2's; and the steps of bench/results/train-h200-2026-11-18.md have
// torch.compile at 1.4.
#include "forecast/work.h"

#include <algorithm>

namespace shoal::forecast {

namespace {

double of_elements(int64_t numel) { return static_cast<double>(numel); }

double kernel_factor(const DecoderShape& shape, Kernels kernels) {
  switch (kernels) {
    case Kernels::fused: break;
    case Kernels::compiled: return 1.4;
    case Kernels::eager: return shape.gated ? 3.0 : 1.6;
  }
  return 1;
}

struct Product {
  int64_t terms = 0, columns = 0;
};

double product_seconds(const std::vector<Product>& products, int64_t rows, const Workload& work, const Gpu& gpu,
                       const Calibration& by, bool fp8) {
  double seconds = 0;
  for (const Product& each : products) {
    const double flops = 2.0 * of_elements(rows) * of_elements(each.terms) * of_elements(each.columns);
    seconds += flops / matmul_rate(by, gpu, rows, each.terms, each.columns, fp8, work.dtype);
  }
  return seconds;
}

}  // namespace

double matmul_rate(const Calibration& calibration, const Gpu& gpu, int64_t rows, int64_t terms, int64_t columns,
                   bool fp8, DType dtype) {
  const bool narrow = fp8 && gpu.fp8_flops > 0;
  const double wide = dtype == DType::f32 ? gpu.fp32_flops : gpu.bf16_flops;
  const double peak = narrow ? gpu.fp8_flops : wide > 0 ? wide : std::max(gpu.fp32_flops, gpu.bf16_flops);
  double share = calibration.matmul * power_share(calibration, dtype == DType::f32 ? 0 : peak, gpu.watts);
  for (const int64_t size : {rows, terms, columns})
    share *= of_elements(size) / (of_elements(size) + calibration.half_rows);
  return peak * share;
}

double moving_seconds(double nbytes, const Gpu& gpu, const Calibration& by) {
  return nbytes / (gpu.memory_bandwidth * by.memory);
}

UnitSeconds embedding_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by) {
  const double nbytes = of_elements(work.tokens() * shape.hidden) * static_cast<double>(nbytes_of(work.dtype));
  return {.forward = moving_seconds(2 * nbytes, gpu, by), .backward = moving_seconds(4 * nbytes, gpu, by)};
}

UnitSeconds block_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by) {
  const int64_t tokens = work.tokens();
  std::vector<Product> products = {{shape.hidden, shape.q_width},  {shape.hidden, shape.kv_width},
                                   {shape.hidden, shape.kv_width}, {shape.q_width, shape.hidden},
                                   {shape.hidden, shape.ffn},      {shape.ffn, shape.hidden}};
  if (shape.gated) products.push_back({shape.hidden, shape.ffn});
  const double matmuls = product_seconds(products, tokens, work, gpu, by, work.fp8);

  // Blocks count as equal: each has the mean of the scores that are looked at.
  const double scores = 4.0 * of_elements(tokens) * shape.attended(work.time) * of_elements(shape.q_width);
  const double attention =
      scores / (by.attention * matmul_rate(by, gpu, tokens, shape.q_width, work.time, false, work.dtype));

  const double element = static_cast<double>(nbytes_of(work.dtype)) * of_elements(tokens);
  const double between = of_elements(9 * shape.hidden + 2 * (shape.q_width + shape.kv_width));
  const double activation = of_elements(shape.ffn);
  const double factor = by.elementwise * kernel_factor(shape, work.kernels) * element;
  const double moved = moving_seconds(factor * (between + (shape.gated ? 3 : 2) * activation), gpu, by);
  const double moved_back = moving_seconds(factor * (between + (shape.gated ? 6 : 3) * activation), gpu, by);
  // To 8 bits and back: a read and two writes of what is multiplied.
  const double narrowed =
      work.fp8
          ? moving_seconds(element / 2 * 4 * of_elements(3 * shape.hidden + shape.q_width + 2 * shape.ffn), gpu, by)
          : 0;

  constexpr double kForwardKernels = 14, kBackwardKernels = 30;
  const double launches = by.launch * kernel_factor(shape, work.kernels);
  UnitSeconds seconds;
  seconds.forward = matmuls + attention + moved + narrowed + launches * kForwardKernels;
  seconds.backward = 2 * matmuls + 2.5 * attention + moved_back + 2 * narrowed + launches * kBackwardKernels;
  seconds.backward += work.full_recompute * seconds.forward + work.selective_recompute * moved;
  return seconds;
}

UnitSeconds head_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by) {
  const int64_t tokens = work.tokens();
  const double matmul = product_seconds({{shape.hidden, shape.vocab}}, tokens, work, gpu, by, false);
  // Logits: fused, in the dtype and in pieces; else in fp32 too, with their softmax and its gradient.
  const double nbytes = of_elements(tokens * shape.vocab) * (work.kernels == Kernels::fused ? 6 : 24);
  const double logits = moving_seconds(nbytes, gpu, by);
  return {.forward = matmul + logits / 2, .backward = 2 * matmul + logits / 2};
}

std::vector<UnitSeconds> unit_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu,
                                      const Calibration& by) {
  std::vector<UnitSeconds> units = {embedding_seconds(shape, work, gpu, by)};
  units.insert(units.end(), static_cast<size_t>(shape.layers), block_seconds(shape, work, gpu, by));
  units.push_back(head_seconds(shape, work, gpu, by));
  return units;
}

}  // namespace shoal::forecast
