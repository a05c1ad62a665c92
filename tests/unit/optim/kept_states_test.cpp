#include "optim/kept_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/convert.h"
#include "message_of.h"
#include "temp_folder.h"
#include "unit/comm/rank_threads.h"
#include "unit/shard/model_parts.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::ModelParts;
using testing::unit_spec;

// fp32 values that neither bf16 nor fp16 can hold.
std::vector<float> odd_values(int64_t numel, float from = 0.1f) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(std::sin(from + static_cast<float>(i)));
  return values;
}

// Two parameters of one flat in chunks of 16 elements, so that most ranges cross from one to the next.
struct Kept {
  Kept(Group& group, int stage, DType dtype, const OffloadConfig& offload = {})
      : parts({unit_spec(0, {45, 38}, dtype)}, stage, group),
        weights(parts.weights()),
        states(parts.layout, config_of(stage, offload), group.rank(), *parts.queue, parts.ledger) {}

  static Config config_of(int stage, const OffloadConfig& offload) {
    Config config;
    config.optimizer.kind = OptimizerKind::adamw;
    config.zero.stage = stage;
    config.zero.offload_optimizer = offload;
    config.shoal.offload_chunk_size = 16;
    return config;
  }
  const FlatLayout& flat() const { return parts.layout.units[0].flats[0]; }

  ModelParts parts;
  Weights weights;
  KeptStates states;
};

TEST(KeptStates, ValuesComeBackToTheBitInEveryDtypeStageAndTier) {
  const testing::TempFolder folder;
  const OffloadConfig on_disk{.tier = Tier::disk, .nvme_path = folder.path()};
  for (const OffloadConfig& offload : {OffloadConfig{}, OffloadConfig{.tier = Tier::host}, on_disk}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (int stage = 0; stage <= 3; ++stage) {
        testing::run_ranks(2, [&](Group& group) {
          Kept kept(group, stage, dtype, offload);
          const std::vector<float> all = odd_values(kept.flat().numel);
          kept.states.set_values(0, 0, {0, kept.flat().numel}, all.data(), kept.weights);
          const KeptStates::Range range = kept.states.kept_range(0, 0);
          EXPECT_GE(range.end - range.begin, kept.flat().shard_numel);
          const KeptStates::Range inner{range.begin + 3, range.end - 5};
          std::vector<float> got(static_cast<size_t>(inner.end - inner.begin));
          kept.states.get_values(0, 0, inner, got.data(), kept.weights);
          EXPECT_EQ(got, std::vector<float>(all.begin() + inner.begin, all.begin() + inner.end))
              << name_of(dtype) << " stage " << stage;
        });
      }
    }
  }
}

TEST(KeptStates, MomentsAreSetElementByElementAndLeaveOthersAlone) {
  const std::unique_ptr<Group> group = make_single_group();
  Kept kept(*group, 1, DType::bf16, {.tier = Tier::host});
  ASSERT_EQ(kept.states.moments(), 2);
  const std::vector<float> set = odd_values(40);
  kept.states.set_moment(1, 0, 0, {10, 50}, set.data());
  std::vector<float> first(60), second(60), expected(60);
  std::copy(set.begin(), set.end(), expected.begin() + 10);
  kept.states.get_moment(0, 0, 0, {0, 60}, first.data());
  kept.states.get_moment(1, 0, 0, {0, 60}, second.data());
  EXPECT_EQ(first, std::vector<float>(60));
  EXPECT_EQ(second, expected);
}

TEST(KeptStates, SettingValuesAgainReplacesAPart) {
  const std::unique_ptr<Group> group = make_single_group();
  Kept kept(*group, 2, DType::bf16);
  std::vector<float> expected = odd_values(80);
  const std::vector<float> later = odd_values(30, 7.3f);
  kept.states.set_values(0, 0, {0, 80}, expected.data(), kept.weights);
  kept.states.set_values(0, 0, {25, 55}, later.data(), kept.weights);
  std::copy(later.begin(), later.end(), expected.begin() + 25);
  std::vector<float> got(80);
  kept.states.get_values(0, 0, {0, 80}, got.data(), kept.weights);
  EXPECT_EQ(got, expected);
}

TEST(KeptStates, AWrittenParameterLosesItsRemainderAndItsNeighbourDoesNot) {
  const std::unique_ptr<Group> group = make_single_group();
  Kept kept(*group, 1, DType::bf16);
  const std::vector<float> all = odd_values(kept.flat().numel);
  kept.states.set_values(0, 0, {0, kept.flat().numel}, all.data(), kept.weights);
  const Piece& second = kept.flat().pieces[1];
  kept.states.reset_param(0, 0, second, kept.weights.whole(0, 0), kept.weights);
  std::vector<float> got(all.size());
  kept.states.get_values(0, 0, {0, kept.flat().numel}, got.data(), kept.weights);
  for (int64_t i = 0; i < second.offset; ++i) EXPECT_EQ(got[i], all[i]) << i;
  for (int64_t i = second.offset; i < second.offset + second.numel; ++i) {
    EXPECT_EQ(kernels::split_remainder(got[i]), 0) << i;
    EXPECT_EQ(kernels::split_weight(got[i]), kernels::split_weight(all[i])) << i;
  }
}

TEST(KeptStates, ElementsOfAnotherRankAreRefused) {
  testing::run_ranks(2, [&](Group& group) {
    Kept kept(group, 3, DType::bf16);
    std::vector<float> values(static_cast<size_t>(kept.flat().numel));
    EXPECT_THAT(testing::message_of([&] {
                  kept.states.get_values(0, 0, {0, kept.flat().numel}, values.data(), kept.weights);
                }),
                HasSubstr("are not kept"));
  });
}

}  // namespace
}  // namespace shoal
