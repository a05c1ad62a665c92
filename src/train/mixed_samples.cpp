// See mixed_samples.h.
#include "train/mixed_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/mix.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

std::vector<int64_t> shares_of(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      throw Error("--data", fmt::format("{} is no weight of a source. Give a number above 0.", weight));
    }
    sum += weight;
  }
  std::vector<int64_t> shares;
  std::vector<double> left;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(kMixBlock);
    shares.push_back(static_cast<int64_t>(std::floor(exact)));
    left.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return left[a] > left[b]; });
  int64_t rest = kMixBlock - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (size_t i = 0; rest > 0; ++i, --rest) ++shares[order[i % order.size()]];
  for (size_t i = 0; i < weights.size(); ++i) {
    if (shares[i] == 0) {
      throw Error("--data", fmt::format("a weight of {} among {} is less than one sample of {}. Give it more, or leave "
                                        "the source out.",
                                        weights[i], sum, format_count(kMixBlock)));
    }
  }
  return shares;
}

MixedSamples::MixedSamples(std::vector<std::unique_ptr<Samples>> parts, const std::vector<double>& weights,
                           uint64_t seed)
    : parts_(std::move(parts)), seed_(seed) {
  SHOAL_CHECK_EQ(parts_.size(), weights.size());
  const std::vector<int64_t> shares = shares_of(weights);
  int64_t taken = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    SHOAL_CHECK(parts_[part]->train() > 0);
    taken += shares[part];
    train_ += parts_[part]->train();
    block_ends_.push_back(taken);
    train_ends_.push_back(train_);
    has_documents_ = has_documents_ || parts_[part]->has_documents();
    for (int64_t i = 0; i < parts_[part]->validation(); ++i) validation_.push_back({part, parts_[part]->train() + i});
  }
  // However few of them an evaluation takes, it has of each source by its size.
  const auto rank_of = [&](const Place& place) {
    const Samples& part = *parts_[place.part];
    return (static_cast<double>(place.sample - part.train()) + 0.5) / static_cast<double>(part.validation());
  };
  std::stable_sort(validation_.begin(), validation_.end(),
                   [&](const Place& a, const Place& b) { return rank_of(a) < rank_of(b); });
}

int64_t MixedSamples::at(int64_t position) const {
  const int64_t block = position / kMixBlock;
  const int64_t place =
      shuffled(position % kMixBlock, kMixBlock, mixed(seed_ ^ 0x6d697865ull, static_cast<uint64_t>(block)));
  const auto part =
      static_cast<size_t>(std::upper_bound(block_ends_.begin(), block_ends_.end(), place) - block_ends_.begin());
  const int64_t first = part == 0 ? 0 : block_ends_[part - 1];
  const int64_t of_part = block * (block_ends_[part] - first) + place - first;
  return (part == 0 ? 0 : train_ends_[part - 1]) + parts_[part]->at(of_part);
}

MixedSamples::Place MixedSamples::place_of(int64_t sample) const {
  SHOAL_CHECK(sample >= 0 && sample < train_ + validation());
  if (sample >= train_) return validation_[static_cast<size_t>(sample - train_)];
  const auto part =
      static_cast<size_t>(std::upper_bound(train_ends_.begin(), train_ends_.end(), sample) - train_ends_.begin());
  return {part, part == 0 ? sample : sample - train_ends_[part - 1]};
}

std::vector<int64_t> MixedSamples::read(int64_t sample, Row row) const {
  const Place place = place_of(sample);
  return parts_[place.part]->read(place.sample, row);
}

int64_t MixedSamples::learned(int64_t sample) const {
  const Place place = place_of(sample);
  return parts_[place.part]->learned(place.sample);
}

std::string MixedSamples::made_of() const { return fmt::format("{} sources make", parts_.size()); }

}  // namespace shoal::train
