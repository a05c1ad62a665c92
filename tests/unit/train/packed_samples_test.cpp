#include "train/packed_samples.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "message_of.h"
#include "unit/train/documents_of.h"

namespace shoal::train {
namespace {

using testing::Counting;
using ::testing::HasSubstr;
using testing::message_of;
using testing::WithDocuments;

struct ReadRow {
  std::vector<int64_t> tokens, targets, lengths;
};

ReadRow read(const Samples& samples, int64_t sample, int64_t sequence) {
  ReadRow row = {
      std::vector<int64_t>(static_cast<size_t>(sequence)), std::vector<int64_t>(static_cast<size_t>(sequence)), {}};
  row.lengths = samples.read(sample, {row.tokens.data(), row.targets.data()});
  return row;
}

TEST(PackedSamples, EveryTargetOfADocumentComesOnceBehindItsOwnTokens) {
  const std::vector<int64_t> lengths = {5, 2, 1, 7, 9, 3, 0, 9, 4};
  const WithDocuments source(lengths);
  const int64_t sequence = 8;
  const PackedSamples samples(source, {.sequence = sequence, .packing = Packing::on});
  std::set<int64_t> targets;
  for (int64_t sample = 0; sample < samples.train(); ++sample) {
    const ReadRow row = read(samples, sample, sequence);
    int64_t at = 0, learned = 0;
    for (const int64_t length : row.lengths) {
      for (int64_t i = at; i < at + length; ++i) {
        const int64_t token = row.tokens[static_cast<size_t>(i)], target = row.targets[static_cast<size_t>(i)];
        if (target == kNotLearned) continue;  // an empty place
        EXPECT_EQ(target, token + 1);
        if (i > at) {
          EXPECT_EQ(token, row.tokens[static_cast<size_t>(i) - 1] + 1) << "one document";
        }
        EXPECT_TRUE(targets.insert(target).second) << target;
        ++learned;
      }
      at += length;
    }
    EXPECT_EQ(at, sequence);
    EXPECT_EQ(samples.learned(sample), learned);
  }
  std::set<int64_t> expected;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = 1; i < length; ++i) expected.insert(begin + i);
    begin += length;
  }
  EXPECT_EQ(targets, expected) << "every token but the first of each document";
  EXPECT_EQ(samples.facts().too_short, 2);
}

TEST(PackedSamples, ALongDocumentIsCutAndALongConversationLosesItsEnd) {
  const WithDocuments documents({20});
  const PackedSamples cut(documents, {.sequence = 8, .packing = Packing::on});
  EXPECT_EQ(cut.facts().longer, 1);
  EXPECT_EQ(cut.facts().places, 19);
  EXPECT_EQ(cut.facts().lost_tokens, 0);
  const WithDocuments conversations({20, 4}, /*masked=*/true);
  const PackedSamples kept(conversations, {.sequence = 8});
  EXPECT_EQ(kept.facts().longer, 1);
  EXPECT_EQ(kept.facts().lost_tokens, 11);
  EXPECT_EQ(kept.facts().places, 8 + 3);
  EXPECT_THAT(describe(kept.facts(), 8), HasSubstr("; 1 longer than --sequence lose 11 tokens behind it"));
  EXPECT_THAT(describe(cut.facts(), 8), HasSubstr("1 documents packed into 3 rows of 8 tokens, 79.2 % full; 1 longer "
                                                  "than --sequence are cut into several"));
}

TEST(PackedSamples, WhatIsNotLearnedIsNoTarget) {
  const WithDocuments source({6, 6}, /*masked=*/true);
  const PackedSamples samples(source, {.sequence = 10});
  ASSERT_EQ(samples.train(), 1);
  const ReadRow row = read(samples, 0, 10);
  EXPECT_EQ(row.lengths, (std::vector<int64_t>{5, 5}));
  int64_t learned = 0;
  for (size_t i = 0; i < 10; ++i) {
    const bool counts = WithDocuments::is_learned(row.tokens[i] + 1);
    EXPECT_EQ(row.targets[i], counts ? row.tokens[i] + 1 : kNotLearned);
    learned += counts;
  }
  EXPECT_EQ(samples.learned(0), learned);
}

TEST(PackedSamples, AConversationWithNothingLearnedIsLeftOutAndCounted) {
  const WithDocuments source({6, 1, 2, 6}, /*masked=*/true);  // of document 2, tokens 7 and 8, 8 is learned
  EXPECT_EQ(PackedSamples(source, {.sequence = 8}).facts().nothing_learned, 0);
  const WithDocuments none({5, 2, 6}, /*masked=*/true);  // tokens 5 and 6: 6 is not
  const PackedSamples samples(none, {.sequence = 8});
  EXPECT_EQ(samples.facts().nothing_learned, 1);
  EXPECT_EQ(samples.made_of(), "3 conversations (1 left out: nothing in their first 8 tokens is learned) make");
  for (int64_t sample = 0; sample < samples.train(); ++sample) EXPECT_GT(samples.learned(sample), 0);
}

TEST(PackedSamples, ValidationHasTheLastDocumentsAndSharesNoRow) {
  const WithDocuments source(std::vector<int64_t>(40, 4));
  const PackedSamples samples(source, {.sequence = 9, .validation = 0.1, .packing = Packing::on});
  EXPECT_EQ(samples.validation(), 2);
  EXPECT_EQ(samples.train(), 12);
  for (int64_t sample = 0; sample < 14; ++sample) {
    for (const int64_t target : read(samples, sample, 9).targets) {
      if (target != kNotLearned) {
        EXPECT_EQ(target >= 36 * 4, sample >= 12) << sample;
      }
    }
  }
}

TEST(PackedSamples, OffGivesEachConversationARowOfItsOwn) {
  const WithDocuments source({6, 3, 8}, /*masked=*/true);
  const PackedSamples samples(source, {.sequence = 9, .packing = Packing::off});
  ASSERT_EQ(samples.train(), 3);
  // Empty places are in documents no longer than those of the row: the longest may choose the rotary angles.
  EXPECT_EQ(read(samples, 1, 9).lengths, (std::vector<int64_t>{2, 2, 2, 2, 1}));
  EXPECT_EQ(read(samples, 0, 9).lengths, (std::vector<int64_t>{5, 4}));
  EXPECT_THAT(describe(samples.facts(), 9), HasSubstr("3 conversations, one a row, in 3 rows of 9 tokens"));
}

TEST(PackedSamples, ASourceWithoutDocumentsIsRefused) {
  EXPECT_THAT(message_of([] { PackedSamples(Counting(100), {.sequence = 9, .packing = Packing::on}); }),
              HasSubstr("[--pack] counting does not say where its documents end"));
}

}  // namespace
}  // namespace shoal::train
