#include "config/batch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

// The members that are not "-".
static std::string batch_text(const std::string& batch, const std::string& micro, const std::string& accum) {
  std::string text = "{";
  const std::pair<const char*, std::string> members[] = {
      {kTrainBatch, batch}, {kMicroBatch, micro}, {kAccumulation, accum}};
  for (const auto& [key, value] : members) {
    if (value != "-") text += fmt::format("\"{}\": {},", key, value);
  }
  return text + "}";
}

TEST(Batch, EverySubsetOfTheTripleGivesTheSameTriple) {
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t micro : {1, 3, 8}) {
      for (const int64_t accum : {1, 2, 5}) {
        const int64_t batch = micro * accum * world;
        const std::string b = std::to_string(batch), m = std::to_string(micro), a = std::to_string(accum);
        const BatchConfig expected{batch, micro, accum};
        EXPECT_EQ(Config::from_text(batch_text(b, m, a), {.world_size = world}).batch, expected);
        EXPECT_EQ(Config::from_text(batch_text(b, m, "-"), {.world_size = world}).batch, expected);
        EXPECT_EQ(Config::from_text(batch_text(b, "-", a), {.world_size = world}).batch, expected);
        EXPECT_EQ(Config::from_text(batch_text("-", m, a), {.world_size = world}).batch, expected);
        if (accum > 1) continue;
        EXPECT_EQ(Config::from_text(batch_text(b, "-", "-"), {.world_size = world}).batch, expected);
        EXPECT_EQ(Config::from_text(batch_text("-", m, "-"), {.world_size = world}).batch, expected);
      }
    }
  }
}

TEST(Batch, RanksThatShareSamplesCountOnce) {
  const ConfigContext shared{.world_size = 6, .data_ranks = 3};
  EXPECT_EQ(Config::from_text(batch_text("24", "2", "-"), shared).batch, (BatchConfig{24, 2, 4}));
  EXPECT_EQ(Config::from_text(batch_text("-", "2", "4"), shared).batch, (BatchConfig{24, 2, 4}));
  for (const int ranks : {0, 4, 12}) {
    EXPECT_THROW(Config::from_text(batch_text("24", "-", "-"), {.world_size = 6, .data_ranks = ranks}), Error) << ranks;
  }
}

TEST(Batch, NumbersThatDoNotFitAreExplained) {
  const ConfigContext two{.world_size = 2};
  EXPECT_EQ(mistakes_of_text(batch_text("64", "4", "8"), {}),
            "[config] 1 mistake:\n  [line 1, train_batch_size] 64 is not 4 (micro-batch) x 8 (accumulation) x 1 rank = "
            "32. Set it "
            "to 32, or leave one of the three out.");
  EXPECT_EQ(mistakes_of_text(batch_text("9", "4", "-"), two),
            "[config] 1 mistake:\n  [line 1, train_batch_size] 9 cannot be divided by 4 (micro-batch) x 2 ranks. Give "
            "a multiple of "
            "8, such as 8.");
  EXPECT_EQ(mistakes_of_text(batch_text("1", "-", "-"), two),
            "[config] 1 mistake:\n  [line 1, train_batch_size] 1 cannot be divided by 1 (accumulation) x 2 ranks. Give "
            "a multiple of "
            "2, such as 2.");
  EXPECT_EQ(mistakes_of_text(batch_text("-", "-", "4")),
            "[config] 1 mistake:\n  [line 1, train_batch_size] the batch is not given. Give train_batch_size or "
            "train_micro_batch_size_per_gpu.");
  EXPECT_EQ(mistakes_of_text("{}"),
            "[config] 1 mistake:\n  [train_batch_size] the batch is not given. Give train_batch_size or "
            "train_micro_batch_size_per_gpu.");
  EXPECT_NE(mistakes_of_text(batch_text("0", "-", "-")).find("0 is out of range"), std::string::npos);
}

TEST(Batch, AutoComesFromTheContextThenFromTheTableThenIsOne) {
  const std::string a = "\"auto\"";
  const ConfigContext knows{.world_size = 2, .micro_batch_size = 3, .accumulation_steps = 4};
  EXPECT_EQ(Config::from_text(batch_text(a, a, a), knows).batch, (BatchConfig{24, 3, 4}));
  EXPECT_EQ(Config::from_text(batch_text(a, "5", a), knows).batch, (BatchConfig{40, 5, 4}));
  EXPECT_EQ(Config::from_text(batch_text("-", "-", "-"), knows).batch, (BatchConfig{24, 3, 4}));
  const ConfigContext two{.world_size = 2};
  EXPECT_EQ(Config::from_text(batch_text(a, a, a), two).batch, (BatchConfig{2, 1, 1}));
  EXPECT_EQ(Config::from_text(batch_text(a, a, "3"), two).batch, (BatchConfig{6, 1, 3}));
  EXPECT_EQ(Config::from_text(batch_text("12", a, "3"), two).batch, (BatchConfig{12, 2, 3}));
  EXPECT_EQ(Config::from_text(batch_text("12", a, a), two).batch, (BatchConfig{12, 6, 1}));
  EXPECT_NE(mistakes_of_text(batch_text("-", "-", a)), "");
}

TEST(Batch, WhatTheFileSaysIsNotOverruledByTheContext) {
  const ConfigContext knows{.world_size = 1, .micro_batch_size = 3, .accumulation_steps = 4};
  EXPECT_EQ(Config::from_text(batch_text("8", "-", "2"), knows).batch, (BatchConfig{8, 4, 2}));
}

}  // namespace shoal::config
