// Measures ranks all at the same time: products and copies where a model would live, host memory that travels to other
// ranks (over NCCL nothing is measured), a disk. Every rank calls it; what it found is judged in rank_rates.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "doctor/rank_rates.h"
#include "shoal/group.h"

namespace shoal::doctor {

struct RankCheckOptions {
  at::Device device = at::kCPU;
  std::string host = {};         // under which this rank is told; "": the system's name
  std::string disk;              // a folder to write 64 MiB to; "": no disk is measured
  double seconds_a_round = 0.1;  // of products and copies; the median of five counts
};

struct CheckedRanks {
  std::vector<RankRates> rates;
  std::vector<std::string> hosts;
};

// The same on every rank. Throws on all of them where one cannot write to the disk.
CheckedRanks check_ranks(Group& world, const RankCheckOptions& options);

}  // namespace shoal::doctor
