// See batches.h.
#include "train/batches.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

int64_t samples_in(const TokenSource& source, int64_t sequence) {
  SHOAL_CHECK(sequence > 0);
  return (source.numel() - 1) / sequence;
}

int64_t validation_of(int64_t samples, double share) {
  SHOAL_CHECK(share >= 0 && share < 1);
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * share));
}

int64_t checked_train_samples(const TokenSource& source, const CutOptions& cut, const BatchPlace& place) {
  const int64_t samples = samples_in(source, cut.sequence);
  const int64_t train = samples - validation_of(samples, cut.validation);
  if (train < place.batch.train_batch_size) {
    throw Error(
        "data " + source.describe(),
        fmt::format("{} tokens make {} training samples of {} tokens{}, fewer than one global batch of {}. Give "
                    "more data, a shorter --sequence or a smaller batch.",
                    source.numel(), train, cut.sequence,
                    samples > train ? fmt::format(" (and {} for validation)", samples - train) : "",
                    place.batch.train_batch_size));
  }
  return train;
}

}  // namespace

BatchPlace batch_place(const Config& config, int rank, int world) {
  const Mesh mesh = mesh_of(config, world);
  return {config.batch, mesh.data_rank(rank), mesh.data_ranks()};
}

Batches::Batches(const TokenSource& source, const CutOptions& cut, const BatchPlace& place)
    : source_(source),
      cut_(cut),
      place_(place),
      validation_samples_(validation_of(samples_in(source, cut.sequence), cut.validation)),
      order_(cut.seed, checked_train_samples(source, cut, place)) {}

int64_t Batches::validation_leaves() const { return validation_samples_ / place_.batch.micro_batch_size; }

std::vector<int64_t> Batches::train_sample_indices(int64_t consumed, int64_t micro_step) const {
  return leaf_samples(consumed, micro_step * place_.data_ranks + place_.data_rank);
}

std::vector<int64_t> Batches::leaf_samples(int64_t consumed, int64_t leaf) const {
  const int64_t micro = place_.batch.micro_batch_size;
  const int64_t begin = consumed + leaf * micro;
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < micro; ++i) samples.push_back(order_.at(begin + i));
  return samples;
}

std::vector<int64_t> Batches::train(int64_t consumed, int64_t micro_step) const {
  return read(train_sample_indices(consumed, micro_step));
}

std::vector<int64_t> Batches::train_leaf(int64_t consumed, int64_t leaf) const {
  return read(leaf_samples(consumed, leaf));
}

std::vector<int64_t> Batches::validation(int64_t leaf) const {
  SHOAL_CHECK_LT(leaf, validation_leaves());
  const int64_t micro = place_.batch.micro_batch_size;
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < micro; ++i) samples.push_back(order_.samples() + leaf * micro + i);
  return read(samples);
}

std::vector<int64_t> Batches::read(const std::vector<int64_t>& samples) const {
  const int64_t row = cut_.sequence + 1;
  std::vector<int64_t> tokens(samples.size() * static_cast<size_t>(row));
  for (size_t i = 0; i < samples.size(); ++i) {
    source_.read(samples[i] * cut_.sequence, row, tokens.data() + static_cast<int64_t>(i) * row);
  }
  return tokens;
}

}  // namespace shoal::train
