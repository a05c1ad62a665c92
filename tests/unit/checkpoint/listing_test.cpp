#include "checkpoint/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/save.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;

TEST(Listing, SaysWhatStandsInAFolder) {
  const TempFolder temp;
  const FakeState state(0, 1);
  auto world = make_single_group();
  for (const int64_t step : {10, 20, 30}) save_state(state.source(), *world, {temp.path(), step, 0, {}});
  std::filesystem::remove(temp / "step-00000030/rank-00000.bin");
  const std::vector<Listed> rows = list_checkpoints(temp.path());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].step, 10);
  EXPECT_EQ(rows[0].problem, "");
  EXPECT_FALSE(rows[0].is_latest);
  EXPECT_TRUE(rows[1].is_latest);
  EXPECT_EQ(rows[1].world, 1);
  EXPECT_EQ(rows[1].params, 5);
  EXPECT_EQ(rows[1].numel, 37 * 3 + 5 * 7 + 24 + 1);
  EXPECT_EQ(rows[1].nbytes, static_cast<int64_t>(std::filesystem::file_size(temp / "step-00000020/rank-00000.bin")));
  EXPECT_EQ(rows[2].step, 30);
  EXPECT_THAT(rows[2].problem, HasSubstr("rank-00000.bin"));
  const std::vector<Listed> one = list_checkpoints(temp / "step-00000010");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].step, 10);
}

TEST(Listing, TheFolderOfARunMeansItsCheckpoints) {
  const TempFolder temp;
  const FakeState state(0, 1);
  auto world = make_single_group();
  for (const int64_t step : {1, 2}) save_state(state.source(), *world, {temp / "run/checkpoints", step, 0, {}});
  std::filesystem::remove(temp / "run/checkpoints/step-00000002/rank-00000.bin");
  ::testing::internal::CaptureStderr();
  const std::vector<Listed> rows = list_checkpoints(temp / "run");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "the rows say what is not complete";
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].path, temp / "run/checkpoints/step-00000001");
  EXPECT_TRUE(rows[0].is_latest);
  EXPECT_THAT(rows[1].problem, HasSubstr("rank-00000.bin"));
}

TEST(Listing, NothingToListIsAnError) {
  const TempFolder temp;
  EXPECT_THAT(message_of([&] { list_checkpoints(temp.path()); }), HasSubstr("holds no checkpoint"));
  EXPECT_THAT(message_of([&] { list_checkpoints(temp / "none"); }), HasSubstr("is not there"));
}

}  // namespace
}  // namespace shoal::checkpoint
