// Samples of several sources in the shares that the user gave, in an order that is a function of the seed and the
// position alone: any rank finds its samples without asking, and a run that stopped goes on with the next.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/samples.h"

namespace shoal::train {

// Of each kMixBlock samples of the row that training takes, every source has its share exactly; within a block they are
// shuffled. So a share is kept to the ten-thousandth.
inline constexpr int64_t kMixBlock = 10'000;

// Whole samples of a block for each source, together kMixBlock: nearest to the weights, the largest remainders up.
// Throws shoal::Error when a weight is no positive number or too small for one sample.
std::vector<int64_t> shares_of(const std::vector<double>& weights);

class MixedSamples final : public Samples {
 public:
  // Each source goes through its own samples, again and again, as if it were alone.
  MixedSamples(std::vector<std::unique_ptr<Samples>> parts, const std::vector<double>& weights, uint64_t seed);

  int64_t train() const override { return train_; }
  int64_t validation() const override { return static_cast<int64_t>(validation_.size()); }
  int64_t at(int64_t position) const override;
  std::vector<int64_t> read(int64_t sample, Row row) const override;
  int64_t learned(int64_t sample) const override;
  bool has_documents() const override { return has_documents_; }
  std::string made_of() const override;

 private:
  struct Place {
    size_t part = 0;
    int64_t sample = 0;  // of that part
  };
  Place place_of(int64_t sample) const;

  std::vector<std::unique_ptr<Samples>> parts_;
  std::vector<int64_t> block_ends_;  // behind each part's shares of a block
  std::vector<int64_t> train_ends_;  // behind each part's training samples
  std::vector<Place> validation_;    // all parts' samples, evenly mixed
  int64_t train_ = 0;
  uint64_t seed_ = 0;
  bool has_documents_ = false;
};

}  // namespace shoal::train
