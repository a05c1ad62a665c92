// Where a run stands in its data, as its checkpoints carry it, and whether a run that resumes means the same data.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "train/token_source.h"

namespace shoal::train {

struct Position {
  int64_t samples = 0;  // consumed by all ranks
  // What the order of samples depends on:
  uint64_t seed = 0;
  int64_t sequence = 0;
  int64_t train_samples = 0;
  std::string data;  // a fingerprint of the tokens
};

// The number of tokens and a hash of some of them: the same data under another path has the same fingerprint.
std::string fingerprint_of(const TokenSource& source);

// Into and out of SaveOptions::extra. A checkpoint without a position (one that was imported) has consumed nothing and
// leaves the rest as in `expected`. Throws shoal::Error when seed, sequence or data are not the expected ones: going on
// would skip and repeat samples.
void put_position(const Position& position, std::map<std::string, std::string>& extra);
int64_t resumed_samples(const std::map<std::string, std::string>& extra, const Position& expected);

}  // namespace shoal::train
