#include "train/batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

// Token i is i.
class Counting final : public TokenSource {
 public:
  explicit Counting(int64_t numel) : numel_(numel) {}
  int64_t numel() const override { return numel_; }
  int64_t vocab() const override { return numel_; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    for (int64_t i = 0; i < numel; ++i) tokens[i] = begin + i;
    EXPECT_LE(begin + numel, numel_);
  }
  std::string describe() const override { return "counting"; }

 private:
  int64_t numel_;
};

BatchConfig batch_of(int64_t all, int64_t micro, int world) {
  return {.train_batch_size = all, .micro_batch_size = micro, .accumulation_steps = all / micro / world};
}

TEST(Batches, ARowIsTheSampleAndTheTokenAfterIt) {
  const Counting source(41);
  const Batches batches(source, {.sequence = 4, .seed = 1}, {.batch = batch_of(2, 2, 1)});
  EXPECT_EQ(batches.train_samples(), 10);
  const std::vector<int64_t> samples = batches.train_sample_indices(0, 0);
  const std::vector<int64_t> tokens = batches.train(0, 0);
  ASSERT_EQ(tokens.size(), 10u);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(tokens[row * 5 + i], samples[row] * 4 + static_cast<int64_t>(i));
  }
}

// The global batches as rows of samples, put together from all ranks in the order of micro-batches.
std::vector<int64_t> global_batches(int world, int64_t micro, int64_t steps) {
  const Counting source(38 * 4 + 1);
  std::vector<int64_t> row;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t a = 0; a < 12 / micro / world; ++a) {
      for (int rank = 0; rank < world; ++rank) {
        const Batches batches(source, {.sequence = 4, .seed = 1}, {batch_of(12, micro, world), rank, world});
        for (const int64_t sample : batches.train_sample_indices(step * 12, a)) row.push_back(sample);
      }
    }
  }
  return row;
}

TEST(Batches, TheGlobalBatchIsTheSameAtEveryWorldSize) {
  const std::vector<int64_t> expected = global_batches(1, 12, 7);
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t micro : {1, 12 / world}) EXPECT_EQ(global_batches(world, micro, 7), expected) << world;
  }
}

TEST(Batches, NothingIsSkippedOrRepeatedInAnEpoch) {
  const std::vector<int64_t> row = global_batches(2, 3, 19);
  ASSERT_EQ(row.size(), 38u * 6);
  for (size_t epoch = 0; epoch < 6; ++epoch) {
    EXPECT_EQ(std::set<int64_t>(row.begin() + epoch * 38, row.begin() + (epoch + 1) * 38).size(), 38u);
  }
}

TEST(Batches, ValidationHasTheLastSamplesAndTrainingNoneOfThem) {
  const Counting source(101 * 4 + 3);
  std::set<int64_t> validated;
  for (int rank = 0; rank < 2; ++rank) {
    const Batches batches(source, {.sequence = 4, .validation = 0.1, .seed = 1}, {batch_of(8, 2, 2), rank, 2});
    EXPECT_EQ(batches.validation_samples(), 11);
    EXPECT_EQ(batches.train_samples(), 90);
    EXPECT_EQ(batches.validation_leaves(), 5) << "of all ranks together, however many there are";
    for (int64_t leaf = 0; leaf < 5; ++leaf) {
      const std::vector<int64_t> tokens = batches.validation(leaf);
      EXPECT_EQ(tokens[0] / 4, 90 + 2 * leaf) << "rank " << rank;
      validated.insert({tokens[0] / 4, tokens[5] / 4});
    }
    for (int64_t consumed = 0; consumed < 96; consumed += 8) {
      for (const int64_t sample : batches.train_sample_indices(consumed, 1)) EXPECT_LT(sample, 90);
    }
  }
  EXPECT_EQ(validated, (std::set<int64_t>{90, 91, 92, 93, 94, 95, 96, 97, 98, 99}));
}

TEST(Batches, TooFewTokensForOneGlobalBatchIsAnError) {
  const auto message = [](int64_t numel, double validation) {
    const Counting source(numel);
    return message_of(
        [&] { Batches(source, {.sequence = 4, .validation = validation}, {.batch = batch_of(8, 8, 1)}); });
  };
  EXPECT_EQ(message(33, 0), "");
  EXPECT_THAT(message(32, 0), HasSubstr("make 7 training samples of 4 tokens, fewer than one global batch of 8"));
  EXPECT_THAT(message(33, 0.1), HasSubstr("(and 1 for validation)"));
  EXPECT_THAT(message(0, 0), HasSubstr("make 0 training samples"));
}

}  // namespace
}  // namespace shoal::train
