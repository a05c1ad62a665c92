// Who takes which samples: each rank's part of a global batch. The same global batch arises at every number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/config.h"
#include "train/samples.h"

namespace shoal::train {

// A rank among those that take samples of their own (Mesh::data_ranks), and the batch they share.
struct BatchPlace {
  BatchConfig batch;
  int data_rank = 0;
  int data_ranks = 1;
};
BatchPlace batch_place(const Config& config, int rank, int world);

// A micro-batch. Rows of `sequence` tokens one after the other.
struct Batch {
  std::vector<int64_t> tokens, targets;
  // The lengths of each row's documents; none where rows are not cut into documents.
  std::vector<std::vector<int64_t>> documents;
  // What its mean loss is to be multiplied with, so that the mean over all micro-batches is the mean over all learned
  // tokens of them. See [Note: the mean over learned tokens].
  double weight = 1;
};

class Batches {
 public:
  // Throws shoal::Error when the samples of `source`, as messages call it, are too few for one global batch. `samples`
  // outlive it.
  Batches(const Samples& samples, const std::string& source, int64_t sequence, const BatchPlace& place);

  int64_t train_samples() const { return samples_.train(); }
  int64_t validation_samples() const { return samples_.validation(); }
  // Micro-batches that validation has, for all ranks together: whole ones only.
  int64_t validation_leaves() const;

  // This rank's part, micro_batch_size rows.
  // `consumed`: samples that all ranks have taken so far. The global batch is the next train_batch_size of the row;
  // micro-step a of data rank r takes its (a * data_ranks + r)-th micro-batch.
  Batch train(int64_t consumed, int64_t micro_step) const;
  // A leaf of the global batch, whichever rank's it is.
  Batch train_leaf(int64_t consumed, int64_t leaf) const;
  // A micro-batch of the first `leaves` of validation, by its number among them all: the same on every rank.
  Batch validation(int64_t leaf, int64_t leaves) const;
  // Tokens that their mean loss is over: those that are learned.
  int64_t validation_tokens(int64_t leaves) const;
  // The samples that train() reads, for tests and messages.
  std::vector<int64_t> train_sample_indices(int64_t consumed, int64_t micro_step) const;

 private:
  std::vector<int64_t> leaf_samples(int64_t consumed, int64_t leaf) const;
  Batch read(const std::vector<int64_t>& samples) const;
  int64_t learned(const std::vector<int64_t>& samples) const;

  const Samples& samples_;
  int64_t sequence_ = 0;
  BatchPlace place_;
};

}  // namespace shoal::train
