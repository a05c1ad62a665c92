// How fast states move between host memory and a queue's, and how fast the host updates them meanwhile: measured, in a
// few hundredths of a second.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device/queue.h"
#include "plan/update_split.h"
#include "shoal/config.h"

namespace shoal {

struct MeasuredUpdate {
  DType dtype = DType::bf16;  // of weights
  DType grad_dtype = DType::bf16;
  OptimizerConfig optimizer = {};
  DType moment_dtype = DType::f32;
  bool narrow_masters = false;
  int64_t numel = int64_t{1} << 24;  // at a time: more than caches hold
};

// Copies go to and from `there`, memory of the queue that nobody needs. Takes host memory and gives it back.
UpdateRates measure_update_rates(Queue& queue, std::span<std::byte> there, Queue& host, const MeasuredUpdate& update,
                                 const std::shared_ptr<Ledger>& ledger);

}  // namespace shoal
