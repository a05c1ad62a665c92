// Samples cut from tokens, and who takes which: the split into training and validation, and each rank's part of a
// global batch. The same global batch arises at every number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/config.h"
#include "train/sample_order.h"
#include "train/token_source.h"

namespace shoal::train {

struct CutOptions {
  int64_t sequence = 256;   // tokens a sample trains on; it reads one more, the last target
  double validation = 0.0;  // share of the samples kept for validation: the last ones
  uint64_t seed = 0;        // of the order
};

// A rank among those that take samples of their own (Mesh::data_ranks), and the batch they share.
struct BatchPlace {
  BatchConfig batch;
  int data_rank = 0;
  int data_ranks = 1;
};
BatchPlace batch_place(const Config& config, int rank, int world);

class Batches {
 public:
  // Throws shoal::Error when the tokens are too few for one global batch of training samples. The source outlives it.
  Batches(const TokenSource& source, const CutOptions& cut, const BatchPlace& place);

  int64_t train_samples() const { return order_.samples(); }
  int64_t validation_samples() const { return validation_samples_; }
  // Micro-batches that validation has, for all ranks together: whole ones only.
  int64_t validation_leaves() const;

  // Tokens of this rank's part: micro_batch_size rows of sequence + 1.
  // `consumed`: samples that all ranks have taken so far. The global batch is the next train_batch_size of the row;
  // micro-step a of data rank r takes its (a * data_ranks + r)-th micro-batch.
  std::vector<int64_t> train(int64_t consumed, int64_t micro_step) const;
  // A leaf of the global batch, whichever rank's it is.
  std::vector<int64_t> train_leaf(int64_t consumed, int64_t leaf) const;
  // A micro-batch of validation, by its number among them all: the same on every rank.
  std::vector<int64_t> validation(int64_t leaf) const;
  // The samples that train() reads, for tests and messages.
  std::vector<int64_t> train_sample_indices(int64_t consumed, int64_t micro_step) const;

 private:
  std::vector<int64_t> leaf_samples(int64_t consumed, int64_t leaf) const;
  std::vector<int64_t> read(const std::vector<int64_t>& samples) const;

  const TokenSource& source_;
  CutOptions cut_;
  BatchPlace place_;
  int64_t validation_samples_ = 0;
  SampleOrder order_;
};

}  // namespace shoal::train
