// Which settings take the least time of those that fit: stage, shard size, micro-batch, recompute, who adds gradients,
// and offload where nothing fits without. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "forecast/ask.h"
#include "plan/fit.h"
#include "plan/placement.h"

namespace shoal::forecast {

enum class Recomputes : uint8_t { none, selective, full };
// As the command line has them.
const char* name_of(Recomputes recomputes);

struct SearchQuestion {
  const PlanSubject& subject;
  Config config;                         // what is not searched for
  json::Value written = json::Object{};  // the same as a file has it, for settings to paste; and the flags beside it
  std::string flags = {};
  DecoderShape shape;
  Workload work;  // its batch and recompute are searched for
  Cluster cluster;
  int world = 1;
  int64_t global_batch = 0;  // samples of a step of all ranks; 0: one micro-step, however large
  int64_t most_batch = 64;
  // Bytes of activations of a micro-batch, on the device and on the host.
  struct Activations {
    size_t device = 0, host = 0;
  };
  std::function<Activations(int64_t batch, Recomputes recomputes)> activations;
};

struct Candidate {
  int stage = 3;
  Sharding sharding;
  bool ring_reduce = false;  // shoal.reduce: nccl
  bool block_ahead = false;  // a prefetch bucket that a block fits into, where the config's is smaller
  int64_t batch = 1, accumulation = 1;
  Recomputes recomputes = Recomputes::none;
  std::string offload;  // "", or in words
  Forecast forecast;
  size_t device_nbytes = 0;  // of a rank
  size_t host_nbytes = 0;    // of a host
  std::string settings;      // JSON for the config file
  std::string flags;         // for the command line, beside it

  double tokens() const { return forecast.rate.tokens; }
};

struct SearchAnswer {
  std::vector<Candidate> candidates;  // that fit, the fastest first
  int tried = 0;
  size_t least_device = 0,
         least_host = 0;  // of a rank and a host, where nothing fits: the least of all that were tried
};

// Throws shoal::Error where the global batch cannot be dealt out.
SearchAnswer search(const SearchQuestion& question, const Calibration& calibration = fitted_calibration());

}  // namespace shoal::forecast
