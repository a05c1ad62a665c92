// `shoal checkpoint` as a user meets it, on what `shoal train` saved. What the verbs do is tested in
// tests/unit/checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "process/command.h"
#include "temp_folder.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result checkpoint(std::vector<std::string> words) {
  words.insert(words.begin(), {SHOAL_BINARY, "checkpoint"});
  return Command(words).wait();
}

// One run for all tests: two checkpoints of a small model, saved by two ranks.
class CheckpointCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = new TempFolder;
    const Result trained =
        Command({SHOAL_BINARY, "train", "--model", "llama-tiny", "--data", "synthetic", "--steps", "2", "--sequence",
                 "16", "--ranks", "2", "--save-every", "1", "--out", *temp_ / "run"})
            .wait();
    ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  }
  static void TearDownTestSuite() { delete temp_; }

  static std::string path(const std::string& name) { return *temp_ / name; }
  static std::string checkpoints() { return path("run/checkpoints"); }

  static TempFolder* temp_;
};
TempFolder* CheckpointCli::temp_ = nullptr;

TEST_F(CheckpointCli, LsListsThemAndMarksTheLatest) {
  const Result plain = checkpoint({"ls", checkpoints()});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, StartsWith("step-00000001 "));
  EXPECT_THAT(plain.out, HasSubstr("saved by 2 ranks  <- latest\n"));
  const Result written = checkpoint({"ls", checkpoints(), "--json"});
  const json::Value rows = json::parse(written.out, "ls --json");
  ASSERT_EQ(rows.as_array().size(), 2u);
  EXPECT_EQ(rows.as_array()[1].find("step")->as_integer(), 2);
  EXPECT_TRUE(rows.as_array()[1].find("latest")->as_boolean());
  EXPECT_TRUE(rows.as_array()[1].find("complete")->as_boolean());
}

TEST_F(CheckpointCli, VerifyNamesTheDamagedPieceAndFails) {
  EXPECT_EQ(checkpoint({"verify", checkpoints()}).exit_code, 0);
  const std::string file = checkpoints() + "/step-00000001/rank-00001.bin";
  flip_bit(file, 8);
  const Result damaged = checkpoint({"verify", checkpoints()});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.out, HasSubstr("step-00000001: damaged\n  rank-00001.bin is damaged: weight of model."));
  EXPECT_THAT(damaged.out, HasSubstr("step-00000002: every byte is as it was saved"));
  const Result written = checkpoint({"verify", checkpoints() + "/step-00000001", "--json"});
  EXPECT_EQ(written.exit_code, 1);
  EXPECT_EQ(json::parse(written.out, "verify --json").as_array()[0].find("problems")->as_array().size(), 1u);
  flip_bit(file, 8);
}

TEST_F(CheckpointCli, WhatIsExportedAndImportedIsTheSame) {
  const Result exported = checkpoint({"export", checkpoints(), path("hf"), "--dtype", "fp32"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("step-00000002 -> "));
  const Result imported = checkpoint({"import", path("hf"), path("imported")});
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(checkpoint({"ls", path("imported")}).out, HasSubstr("weights only"));
  EXPECT_EQ(checkpoint({"export", path("imported"), path("again"), "--dtype", "fp32"}).exit_code, 0);
  EXPECT_EQ(text_of_file(path("again/model.safetensors")), text_of_file(path("hf/model.safetensors")));
  EXPECT_EQ(text_of_file(path("again/config.json")), text_of_file(path("hf/config.json")));
  const Result resumed = Command({SHOAL_BINARY, "train", "--model", path("hf"), "--data", "synthetic", "--steps", "1",
                                  "--sequence", "16", "--resume", path("imported")})
                             .wait();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.out << resumed.err;
}

TEST_F(CheckpointCli, TheFolderOfTheRunDoesAsWell) {
  EXPECT_EQ(checkpoint({"ls", path("run")}).out, checkpoint({"ls", checkpoints()}).out);
  EXPECT_EQ(checkpoint({"verify", path("run")}).exit_code, 0);
  const Result exported = checkpoint({"export", path("run"), path("of_run")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("run/checkpoints/step-00000002 -> "));
  const Result imported = checkpoint({"import", path("of_run"), checkpoints()});
  EXPECT_EQ(imported.exit_code, 1);
  EXPECT_THAT(imported.err, HasSubstr("holds step-00000002 already. Name a folder without checkpoints."));
  EXPECT_EQ(text_of_file(checkpoints() + "/latest"), "step-00000002\n");
}

TEST_F(CheckpointCli, MistakesAreTold) {
  const Result nothing = checkpoint({"verify", path("none")});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("is not there. Check the path."));
  const Result no_weights = checkpoint({"import", path("run"), path("x")});
  EXPECT_EQ(no_weights.exit_code, 2);
  EXPECT_THAT(no_weights.err, HasSubstr("holds no .safetensors"));
  EXPECT_EQ(checkpoint({"export", checkpoints(), path("y"), "--dtype", "int8"}).exit_code, 2);
  EXPECT_EQ(checkpoint({"remove"}).exit_code, 2);
}

}  // namespace
}  // namespace shoal::testing
