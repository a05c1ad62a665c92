// See batches.h.
#include "train/batches.h"

#include <fmt/format.h>

#include "base/check.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

double weight_of(int64_t learned, int64_t leaves, int64_t learned_of_all) {
  SHOAL_CHECK(learned > 0 && learned <= learned_of_all);
  return static_cast<double>(learned) * static_cast<double>(leaves) / static_cast<double>(learned_of_all);
}

}  // namespace

BatchPlace batch_place(const Config& config, int rank, int world) {
  const Mesh mesh = mesh_of(config, world);
  return {config.batch, mesh.data_rank(rank), mesh.data_ranks()};
}

// [Note: the mean over learned tokens]
// A micro-batch's loss is the mean over its own learned tokens, and a step's gradient the mean over its V micro-batches
// (docs/exactness.md). With n of the step's N learned tokens in a micro-batch, its loss is multiplied with n V / N, so
// that the step has the mean over all N. Which samples a step has is known to every rank, so N is: nobody sends it. The
// factor belongs to the micro-batch, whoever runs it, and is 1 where every token is learned: the bits of a step are the
// same at every stage and number of ranks. Validation has it over the micro-batches of one evaluation.

Batches::Batches(const Samples& samples, const std::string& source, int64_t sequence, const BatchPlace& place)
    : samples_(samples), sequence_(sequence), place_(place) {
  if (train_samples() >= place.batch.train_batch_size) return;
  throw Error(
      "data " + source,
      fmt::format("{} {} training samples of {} tokens{}, fewer than one global batch of {}. Give more data, {} "
                  "--sequence or a smaller batch.",
                  samples.made_of(), train_samples(), sequence,
                  validation_samples() > 0 ? fmt::format(" (and {} for validation)", validation_samples()) : "",
                  place.batch.train_batch_size, samples.has_documents() ? "another" : "a shorter"));
}

int64_t Batches::validation_leaves() const { return validation_samples() / place_.batch.micro_batch_size; }

std::vector<int64_t> Batches::train_sample_indices(int64_t consumed, int64_t micro_step) const {
  return leaf_samples(consumed, micro_step * place_.data_ranks + place_.data_rank);
}

std::vector<int64_t> Batches::leaf_samples(int64_t consumed, int64_t leaf) const {
  const int64_t micro = place_.batch.micro_batch_size;
  const int64_t begin = consumed + leaf * micro;
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < micro; ++i) samples.push_back(samples_.at(begin + i));
  return samples;
}

Batch Batches::train(int64_t consumed, int64_t micro_step) const {
  return train_leaf(consumed, micro_step * place_.data_ranks + place_.data_rank);
}

Batch Batches::train_leaf(int64_t consumed, int64_t leaf) const {
  const std::vector<int64_t> own = leaf_samples(consumed, leaf);
  Batch batch = read(own);
  if (!samples_.has_documents()) return batch;
  int64_t all = 0;
  for (int64_t i = 0; i < place_.batch.train_batch_size; ++i) all += samples_.learned(samples_.at(consumed + i));
  batch.weight = weight_of(learned(own), place_.batch.train_batch_size / place_.batch.micro_batch_size, all);
  return batch;
}

Batch Batches::validation(int64_t leaf, int64_t leaves) const {
  SHOAL_CHECK_LT(leaf, leaves);
  SHOAL_CHECK(leaves <= validation_leaves());
  const int64_t micro = place_.batch.micro_batch_size;
  std::vector<int64_t> own;
  for (int64_t i = 0; i < micro; ++i) own.push_back(train_samples() + leaf * micro + i);
  Batch batch = read(own);
  if (samples_.has_documents()) batch.weight = weight_of(learned(own), leaves, validation_tokens(leaves));
  return batch;
}

int64_t Batches::validation_tokens(int64_t leaves) const {
  const int64_t samples = leaves * place_.batch.micro_batch_size;
  if (!samples_.has_documents()) return samples * sequence_;
  int64_t all = 0;
  for (int64_t i = 0; i < samples; ++i) all += samples_.learned(train_samples() + i);
  return all;
}

int64_t Batches::learned(const std::vector<int64_t>& samples) const {
  int64_t learned = 0;
  for (const int64_t sample : samples) learned += samples_.learned(sample);
  return learned;
}

Batch Batches::read(const std::vector<int64_t>& samples) const {
  Batch batch;
  const size_t places = samples.size() * static_cast<size_t>(sequence_);
  batch.tokens.resize(places);
  batch.targets.resize(places);
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t at = i * static_cast<size_t>(sequence_);
    std::vector<int64_t> documents = samples_.read(samples[i], {batch.tokens.data() + at, batch.targets.data() + at});
    if (samples_.has_documents()) batch.documents.push_back(std::move(documents));
  }
  return batch;
}

}  // namespace shoal::train
