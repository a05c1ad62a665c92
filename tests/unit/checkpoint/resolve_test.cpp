#include "checkpoint/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/run_folder.h"
#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

void save(const std::string& folder, int64_t step) { PendingCheckpoint(folder, step).publish(write_manifest({})); }

std::string resolved(const std::string& path) { return resolve_checkpoint(path, "--x"); }

TEST(Resolve, ARunItsFolderOfCheckpointsAndOneOfThemAreAllTaken) {
  const TempFolder temp;
  const std::string folder = temp / "run/checkpoints";
  for (const int64_t step : {1, 2}) save(folder, step);
  for (const std::string& path : {temp / "run", temp / "run/", folder, folder + "/"}) {
    EXPECT_TRUE(std::filesystem::equivalent(resolved(path), folder + "/step-00000002")) << path;
    EXPECT_TRUE(std::filesystem::equivalent(checkpoints_in(path), folder)) << path;
  }
  EXPECT_EQ(resolved(temp / "run"), folder + "/step-00000002");
  EXPECT_EQ(resolved(folder + "/step-00000001"), folder + "/step-00000001");
  EXPECT_EQ(resolved(folder + "/step-00000001/"), folder + "/step-00000001/");
}

TEST(Resolve, CheckpointsInAFolderComeBeforeThoseBelowIt) {
  const TempFolder temp;
  save(temp.path(), 1);
  save(temp / "checkpoints", 2);
  EXPECT_EQ(resolved(temp.path()), temp / "step-00000001");
}

TEST(Resolve, ACheckpointThatIsNamedIsTakenEvenWithoutAManifest) {
  const TempFolder temp;
  std::filesystem::create_directories(temp / "step-00000003");
  EXPECT_EQ(resolved(temp / "step-00000003"), temp / "step-00000003");
  EXPECT_EQ(resolved(temp / "step-00000003/"), temp / "step-00000003/");
}

TEST(Resolve, WhereThereIsNoneThePlaceIsNamed) {
  const TempFolder temp;
  EXPECT_EQ(message_of([&] { resolved(temp / "none"); }),
            "[--x] " + (temp / "none") + " is not there. Check the path.");
  EXPECT_EQ(message_of([&] { resolved(temp.write("a.jsonl", "{}")); }),
            "[--x] " + (temp / "a.jsonl") + " is no folder. Check the path.");
  EXPECT_EQ(message_of([&] { resolved(temp / "step-00000001"); }),
            "[--x] " + (temp / "step-00000001") + " is not there. Check the path.");
  EXPECT_THAT(message_of([&] { resolved(temp.path()); }), HasSubstr("[--x] " + temp.path() + " holds no complete"));
}

TEST(Resolve, WhatIsPassedOverIsToldOnlyWhereAskedFor) {
  const TempFolder temp;
  for (const int64_t step : {1, 2}) save(temp.path(), step);
  std::filesystem::remove(temp / "step-00000002/manifest.json");
  for (const PassedOver passed_over : {PassedOver::told, PassedOver::untold}) {
    CaptureStderr();
    EXPECT_EQ(resolve_checkpoint(temp.path(), "--x", passed_over), temp / "step-00000001");
    const std::string said = GetCapturedStderr();
    EXPECT_EQ(said.find("step-00000002 is not complete") != std::string::npos, passed_over == PassedOver::told) << said;
  }
}

}  // namespace
}  // namespace shoal::checkpoint
