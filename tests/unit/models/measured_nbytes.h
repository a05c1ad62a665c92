// What a micro-step holds on the CPU, to compare with what a model says of itself.
#pragma once

#include <ATen/Parallel.h>

#include "unit/models/counting_allocator.h"
#include "unit/models/tiny_model.h"

namespace shoal::testing {

// Bytes that tensors hold at the peak of a micro-step, beyond what they hold between steps.
inline int64_t measured_nbytes(const std::string& config, const std::string& precision,
                               const models::RecomputedBlocks& blocks,
                               const std::optional<models::LoraSpec>& lora = std::nullopt) {
  at::set_num_threads(1);  // products in fp32 of 16-bit values have room of their own in each thread
  const auto world = make_single_group();
  TinyTraining training({.config_json = config, .open = {.lora = lora}, .precision = precision}, *world);
  training.model->set_recomputed(blocks);
  const at::Tensor tokens = TinyTraining::tokens(0, 64);
  const auto run = [&] { training.engine.backward(training.model->loss(training.engine, tokens, tokens)); };
  run();
  training.engine.step();
  CountingAllocator counted;
  run();
  training.engine.step();
  return counted.peak();
}

}  // namespace shoal::testing
