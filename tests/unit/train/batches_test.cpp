#include "train/batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "message_of.h"
#include "train/packed_samples.h"
#include "unit/train/documents_of.h"

namespace shoal::train {
namespace {

using testing::Counting;
using ::testing::HasSubstr;
using testing::message_of;
using testing::WithDocuments;

BatchConfig batch_of(int64_t all, int64_t micro, int world) {
  return {.train_batch_size = all, .micro_batch_size = micro, .accumulation_steps = all / micro / world};
}

TEST(Batches, ATargetIsTheTokenAfterIt) {
  const Counting source(41);
  const auto cut = cut_windows(source, {.sequence = 4, .seed = 1});
  const Batches batches(*cut, "counting", 4, {.batch = batch_of(2, 2, 1)});
  EXPECT_EQ(batches.train_samples(), 10);
  const std::vector<int64_t> samples = batches.train_sample_indices(0, 0);
  const Batch batch = batches.train(0, 0);
  ASSERT_EQ(batch.tokens.size(), 8u);
  EXPECT_TRUE(batch.documents.empty());
  EXPECT_EQ(batch.weight, 1);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(batch.tokens[row * 4 + i], samples[row] * 4 + static_cast<int64_t>(i));
      EXPECT_EQ(batch.targets[row * 4 + i], batch.tokens[row * 4 + i] + 1);
    }
  }
}

// The global batches as rows of samples, put together from all ranks in the order of micro-batches.
std::vector<int64_t> global_batches(int world, int64_t micro, int64_t steps) {
  const Counting source(38 * 4 + 1);
  std::vector<int64_t> row;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t a = 0; a < 12 / micro / world; ++a) {
      for (int rank = 0; rank < world; ++rank) {
        const auto cut = cut_windows(source, {.sequence = 4, .seed = 1});
        const Batches batches(*cut, "counting", 4, {batch_of(12, micro, world), rank, world});
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
    const auto cut = cut_windows(source, {.sequence = 4, .validation = 0.1, .seed = 1});
    const Batches batches(*cut, "counting", 4, {batch_of(8, 2, 2), rank, 2});
    EXPECT_EQ(batches.validation_samples(), 11);
    EXPECT_EQ(batches.train_samples(), 90);
    EXPECT_EQ(batches.validation_leaves(), 5) << "of all ranks together, however many there are";
    for (int64_t leaf = 0; leaf < 5; ++leaf) {
      const std::vector<int64_t> tokens = batches.validation(leaf, 5).tokens;
      EXPECT_EQ(tokens[0] / 4, 90 + 2 * leaf) << "rank " << rank;
      validated.insert({tokens[0] / 4, tokens[4] / 4});
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
    const auto cut = cut_windows(source, {.sequence = 4, .validation = validation});
    return message_of([&] { Batches(*cut, "counting", 4, {.batch = batch_of(8, 8, 1)}); });
  };
  EXPECT_EQ(message(33, 0), "");
  EXPECT_THAT(message(32, 0), HasSubstr("make 7 training samples of 4 tokens, fewer than one global batch of 8"));
  EXPECT_THAT(message(33, 0.1), HasSubstr("(and 1 for validation)"));
  EXPECT_THAT(message(0, 0), HasSubstr("make 0 training samples"));
}

// The weights of all micro-batches of a step, and what they are to be: each's share of the learned tokens.
TEST(Batches, AMicroBatchWeighsByItsLearnedTokensAtEveryWorldSize) {
  const WithDocuments source({5, 2, 7, 3, 3, 9, 4, 2, 6, 5, 8, 3}, /*masked=*/true);
  const auto cut = std::make_unique<PackedSamples>(source, CutOptions{.sequence = 8, .seed = 3});
  ASSERT_GE(cut->train(), 6);
  std::vector<double> expected;
  for (const int world : {1, 2, 3}) {
    std::vector<double> weights(6);
    double learned = 0;
    for (int rank = 0; rank < world; ++rank) {
      const Batches batches(*cut, "documents", 8, {batch_of(6, 1, world), rank, world});
      for (int64_t a = 0; a < 6 / world; ++a) {
        const Batch batch = batches.train(6, a);
        const auto here = std::count_if(batch.targets.begin(), batch.targets.end(), [](int64_t t) { return t >= 0; });
        weights[static_cast<size_t>(a * world + rank)] = batch.weight;
        learned += static_cast<double>(here);
        EXPECT_EQ(batch.documents.size(), 1u);
      }
    }
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 6, 1e-12);
    if (world == 1) expected = weights;
    EXPECT_EQ(weights, expected) << world;
    for (int rank = 0; rank < world; ++rank) {
      const Batches batches(*cut, "documents", 8, {batch_of(6, 1, world), rank, world});
      const Batch batch = batches.train(6, 0);
      const auto here = std::count_if(batch.targets.begin(), batch.targets.end(), [](int64_t t) { return t >= 0; });
      EXPECT_EQ(batch.weight, static_cast<double>(here) * 6 / learned);
    }
  }
}

TEST(Batches, ValidationCountsTheTokensThatItsLossIsTheMeanOf) {
  const WithDocuments source({5, 2, 7, 3, 3, 9, 4, 2, 6, 5, 8, 3}, /*masked=*/true);
  const auto cut = std::make_unique<PackedSamples>(source, CutOptions{.sequence = 8, .validation = 0.5, .seed = 3});
  const Batches batches(*cut, "documents", 8, {batch_of(1, 1, 1), 0, 1});
  const int64_t leaves = batches.validation_leaves();
  ASSERT_GE(leaves, 2);
  int64_t learned = 0;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    const std::vector<int64_t> targets = batches.validation(leaf, leaves).targets;
    learned += std::count_if(targets.begin(), targets.end(), [](int64_t t) { return t >= 0; });
  }
  EXPECT_LT(learned, leaves * 8);
  EXPECT_EQ(batches.validation_tokens(leaves), learned);
}

}  // namespace
}  // namespace shoal::train
