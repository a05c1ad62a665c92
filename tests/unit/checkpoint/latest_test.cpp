// find_latest_checkpoint, in latest.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/run_folder.h"
#include "shoal/checkpoint.h"
#include "temp_folder.h"

namespace shoal {
namespace {

using shoal::testing::put_file;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

void save(const std::string& folder, int64_t step) {
  checkpoint::PendingCheckpoint(folder, step).publish(checkpoint::write_manifest({}));
}

TEST(Latest, NoFolderOrNoCheckpointIsNone) {
  const TempFolder temp;
  EXPECT_EQ(find_latest_checkpoint(temp / "none"), "");
  EXPECT_EQ(find_latest_checkpoint(temp.path()), "");
}

TEST(Latest, IsTheLastOneSavedEvenIfNotOfTheHighestStep) {
  const TempFolder temp;
  save(temp.path(), 9);
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000009");
  save(temp.path(), 4);
  CaptureStderr();
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000004");
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(Latest, PassesOverWhatIsBrokenAndSaysSo) {
  const TempFolder temp;
  for (const int64_t step : {1, 2, 3, 4}) save(temp.path(), step);
  put_file(temp / "step-00000004/manifest.json", "{");
  std::filesystem::remove(temp / "step-00000003/manifest.json");
  CaptureStderr();
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step-00000004 is not complete and is passed over: "));
  EXPECT_THAT(said, HasSubstr("step-00000003 is not complete and is passed over: "));
}

TEST(Latest, AForeignOrAbsentPointerFallsBackToTheHighestStep) {
  const TempFolder temp;
  for (const int64_t step : {1, 2}) save(temp.path(), step);
  put_file(temp / "latest", "../somewhere\n");
  CaptureStderr();
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("latest does not name a checkpoint"));
  put_file(temp / "latest", "step-00000007");
  CaptureStderr();
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("step-00000007"));
  std::filesystem::remove(temp / "latest");
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
}

}  // namespace
}  // namespace shoal
