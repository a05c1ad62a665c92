// See sample_order.h.
#include "train/sample_order.h"

#include <bit>

#include "base/check.h"
#include "base/mix.h"

namespace shoal::train {

namespace {

constexpr int kRounds = 6;

}  // namespace

// A Feistel network permutes the numbers of 2k bits, where k is the least that holds all of [0, count). Numbers that
// land outside are sent through again: the walk along their cycle ends inside, at a place that no other number gets.
int64_t shuffled(int64_t index, int64_t count, uint64_t key) {
  SHOAL_CHECK(0 <= index && index < count);
  if (count == 1) return 0;
  const int half = (static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1))) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mixed(key + static_cast<uint64_t>(round), right) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

SampleOrder::SampleOrder(uint64_t seed, int64_t samples) : seed_(seed), samples_(samples) { SHOAL_CHECK(samples > 0); }

int64_t SampleOrder::at(int64_t position) const {
  const int64_t epoch = position / samples_;
  return shuffled(position % samples_, samples_, mixed(seed_, static_cast<uint64_t>(epoch)));
}

}  // namespace shoal::train
