#include "train/samples.h"

#include <gtest/gtest.h>

#include "unit/train/documents_of.h"

namespace shoal::train {
namespace {

using testing::Counting;

TEST(Windows, DoNotOverlapAndReadOneTokenMore) {
  for (const int64_t sequence : {1, 2, 5}) {
    const Counting source(3 * sequence + 1);
    const auto windows = cut_windows(source, {.sequence = sequence, .validation = 0.2});
    EXPECT_EQ(windows->train(), 2);
    EXPECT_EQ(windows->validation(), 1);
    EXPECT_FALSE(windows->has_documents());
    for (int64_t sample = 0; sample < 3; ++sample) {
      std::vector<int64_t> tokens(static_cast<size_t>(sequence)), targets(static_cast<size_t>(sequence));
      EXPECT_EQ(windows->read(sample, {tokens.data(), targets.data()}), std::vector<int64_t>{sequence});
      EXPECT_EQ(windows->learned(sample), sequence);
      for (int64_t i = 0; i < sequence; ++i) {
        EXPECT_EQ(tokens[static_cast<size_t>(i)], sample * sequence + i);
        EXPECT_EQ(targets[static_cast<size_t>(i)], sample * sequence + i + 1);
      }
    }
  }
}

TEST(Validation, IsRoundedUp) {
  EXPECT_EQ(validation_of(100, 0), 0);
  EXPECT_EQ(validation_of(100, 0.05), 5);
  EXPECT_EQ(validation_of(101, 0.05), 6);
  EXPECT_EQ(validation_of(0, 0.5), 0);
}

}  // namespace
}  // namespace shoal::train
