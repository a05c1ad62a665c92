// Shapes and clusters that tests of forecasts share.
#pragma once

#include <string>

#include "forecast/ask.h"

namespace shoal::forecast::testing {

inline DecoderShape llama_7b() {
  return {.hidden = 4096, .layers = 32, .heads = 32, .q_width = 4096, .kv_width = 4096, .ffn = 11008, .vocab = 32000};
}

// Two hosts of two: H100 with NVLink, 400 Gb/s.
inline Cluster four_gpus() {
  Cluster cluster = *find_cluster("H100");
  cluster.gpus_per_host = 2;
  cluster.hosts = 2;
  cluster.between = between_link("400", "");
  return cluster;
}

inline PlanSubject subject_of(const DecoderShape& shape, DType dtype = DType::bf16) {
  PlanSubject subject;
  subject.name = "model";
  subject.units = units_of(shape, dtype);
  return subject;
}

inline Config config_at(int stage, int64_t accumulation = 1) {
  Config config;
  config.precision = Precision::bf16;
  config.zero.stage = stage;
  config.batch.accumulation_steps = accumulation;
  return config;
}

}  // namespace shoal::forecast::testing
