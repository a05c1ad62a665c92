// The same bits at every number of ranks: one step of V leaves, dealt out to 1, 2, 3, ... ranks, has the same losses,
// norms, decisions and weights. (Stages, overlap and recompute at one number of ranks: exactness_test.cpp.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "test_size.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

struct Row {
  std::string name;
  Precision precision = Precision::fp32;
  int stage = 0;
  int64_t group = 0;
  std::function<void(RunOptions&, const std::string& folder)> change = {};
};

int leaves() { return tests_are_whole() ? 24 : 6; }

std::vector<int> worlds() { return tests_are_whole() ? std::vector{2, 3, 4, 6, 8} : std::vector{2, 3, 6}; }

void in_host(RunOptions& options, const std::string&) { options.offload.tier = Tier::host; }
void on_disk(RunOptions& options, const std::string& folder) {
  options.offload = {.tier = Tier::disk, .nvme_path = folder};
}
void weights_in_host(RunOptions& options, const std::string&) { options.weights_tier = Tier::host; }
void recomputed(RunOptions& options, const std::string&) { options.recompute = true; }
void unclipped(RunOptions& options, const std::string&) { options.clip = false; }
void ahead(RunOptions& options, const std::string&) {
  options.offload.tier = Tier::host;
  options.speculative = true;
}

std::vector<Row> rows() {
  if (!tests_are_whole()) {
    return {{"fp32_stage3", Precision::fp32, 3},
            {"bf16_stage0_recomputed", Precision::bf16, 0, 0, recomputed},
            {"bf16_stage3_disk", Precision::bf16, 3, 0, on_disk},
            {"fp16_stage2", Precision::fp16, 2},
            {"bf16_stage3_groups_of_4", Precision::bf16, 3, 4}};
  }
  std::vector<Row> all;
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const std::string name = fmt::format("{}_stage{}", name_of(precision), stage);
      all.push_back({name, precision, stage});
      all.push_back({name + "_unclipped", precision, stage, 0, unclipped});
      all.push_back({name + "_recomputed", precision, stage, 0, recomputed});
      all.push_back({name + "_host", precision, stage, 0, in_host});
      all.push_back({name + "_disk", precision, stage, 0, on_disk});
      all.push_back({name + "_ahead", precision, stage, 0, ahead});
      all.push_back({name + "_groups_of_2", precision, stage, 2});
      all.push_back({name + "_groups_of_5", precision, stage, 5});
      if (stage == 3) all.push_back({name + "_weights_host", precision, stage, 0, weights_in_host});
    }
  }
  return all;
}

RunOptions options_of(const Row& row, const std::string& folder) {
  RunOptions options;
  options.precision = row.precision;
  options.stage = row.stage;
  options.leaves = leaves();
  options.fold_group = row.group;
  options.evaluate_every = 4;
  options.steps = 10;
  if (row.change) row.change(options, folder);
  return options;
}

// The ranks' losses by leaf.
std::vector<double> losses_of(const std::vector<RunResult>& ranks) {
  std::vector<double> losses;
  for (size_t i = 0; i < ranks[0].losses.size(); ++i) {
    for (const RunResult& rank : ranks) losses.push_back(rank.losses[i]);
  }
  return losses;
}

class EveryWorld : public ::testing::TestWithParam<Row> {};

TEST_P(EveryWorld, HasTheBitsOfOneRank) {
  const TempFolder folder;
  const RunOptions options = options_of(GetParam(), folder.path());
  const std::vector<RunResult> alone = train_on_threads(1, options);
  EXPECT_FALSE(alone[0].applied[7]) << "the forced overflow was applied";
  EXPECT_TRUE(alone[0].applied[8]);
  for (const int world : worlds()) {
    const std::vector<RunResult> ranks = train_on_threads(world, options);
    EXPECT_EQ(RunResult::bits(losses_of(ranks)), RunResult::bits(alone[0].losses)) << world << " ranks";
    EXPECT_EQ(RunResult::bits(ranks[0].norms), RunResult::bits(alone[0].norms)) << world << " ranks";
    EXPECT_EQ(ranks[0].applied, alone[0].applied) << world << " ranks";
    for (const RunResult& rank : ranks) EXPECT_TRUE(rank.weights == alone[0].weights) << world << " ranks";
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, EveryWorld, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name; });

// All rows of one precision, and all stages, have the bits of the first one: no tier, stage or recompute shows.
TEST(EveryWorldCheck, StagesHaveTheSameBitsAtOneRankToo) {
  RunOptions options = options_of({"", Precision::bf16, 0}, "");
  const RunResult expected = train_on_threads(1, options)[0];
  for (int stage = 1; stage <= 3; ++stage) {
    options.stage = stage;
    EXPECT_TRUE(train_on_threads(1, options)[0] == expected) << "stage " << stage;
  }
}

// The comparison above must be able to fail: another size of group adds in another order.
TEST(EveryWorldCheck, AnotherGroupGivesOtherBits) {
  RunOptions options = options_of({"", Precision::fp32, 3}, "");
  const RunResult one = train_on_threads(2, options)[0];
  options.fold_group = 2;
  EXPECT_NE(one.weights, train_on_threads(2, options)[0].weights);
  options.fold_group = options.leaves;
  EXPECT_TRUE(train_on_threads(2, options)[0] == one) << "a group that holds all is no group";
}

// Without `reproducible` stages 0 and 1 add up each rank's leaves first, which the number of ranks shows in.
TEST(EveryWorldCheck, SumsOfEachRankFirstGiveOtherBits) {
  RunOptions options = options_of({"", Precision::fp32, 1}, "");
  const RunResult alone = train_on_threads(1, options)[0];
  options.reproducible = false;
  EXPECT_NE(alone.weights, train_on_threads(2, options)[0].weights);
}

}  // namespace
}  // namespace shoal::testing
