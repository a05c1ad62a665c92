// How long one GPU computes: the forward and the backward of each unit, and the update. From shapes, the GPU's numbers
// and the calibration; nothing between ranks. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/cluster.h"
#include "forecast/decoder_shape.h"
#include "shoal/dtype.h"

namespace shoal::forecast {

// Who runs the operations between matrix products.
enum class Kernels : uint8_t {
  fused,     // models/ops: one kernel for what belongs together
  compiled,  // torch.compile
  eager,     // an operation after the other, as PyTorch does
};

// One micro-step of a rank.
struct Workload {
  int64_t batch = 1, time = 1;
  DType dtype = DType::bf16;
  bool fp8 = false;  // matrix products of blocks
  Kernels kernels = Kernels::fused;
  // Of the blocks: those that compute their whole forward again in backward, and those of the others that compute
  // again what lies between matrix products. Blocks count as equal, so shares are enough.
  double full_recompute = 0;
  double selective_recompute = 0;

  int64_t tokens() const { return batch * time; }
};

struct UnitSeconds {
  double forward = 0;
  double backward = 0;  // with what it computes again
};

// FLOP/s that a product [rows, terms] x [terms, columns] reaches.
double matmul_rate(const Calibration& calibration, const Gpu& gpu, int64_t rows, int64_t terms, int64_t columns,
                   bool fp8, DType dtype = DType::bf16);

UnitSeconds embedding_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by);
UnitSeconds block_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by);
UnitSeconds head_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu, const Calibration& by);
// Embedding, blocks, head.
std::vector<UnitSeconds> unit_seconds(const DecoderShape& shape, const Workload& work, const Gpu& gpu,
                                      const Calibration& by);

// Seconds in which the GPU reads and writes so many bytes.
double moving_seconds(double nbytes, const Gpu& gpu, const Calibration& by);

}  // namespace shoal::forecast
