#include "checkpoint/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/sample_manifest.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::message_of;
using shoal::testing::names_of;
using shoal::testing::put_file;
using shoal::testing::TempFolder;
using shoal::testing::text_of_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void publish(PendingCheckpoint& pending) {
  const Manifest manifest = shoal::testing::sample_manifest();
  for (const SavedFile& file : manifest.files) {
    put_file(pending.temporary_path() + "/" + file.name, std::string(static_cast<size_t>(file.nbytes), 's'));
  }
  pending.publish(write_manifest(manifest));
}

void save(const std::string& folder, int64_t step) {
  PendingCheckpoint pending(folder, step);
  publish(pending);
}

TEST(RunFolder, NamesAreReadBackAndOthersAreNot) {
  EXPECT_EQ(step_name(100), "step-00000100");
  EXPECT_EQ(step_name(1234567890), "step-1234567890");
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{1234567890}})
    EXPECT_EQ(step_of_name(step_name(step)), step);
  for (const char* name : {"", "step-", "step-1", "step-0000010a", ".step-00000100.tmp-1", "step--0000001", "latest"}) {
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
  }
}

TEST(RunFolder, NothingIsSeenBeforePublishAndEverythingAfter) {
  const TempFolder temp;
  const std::string folder = temp / "run/checkpoints";
  {
    PendingCheckpoint pending(folder, 5);
    EXPECT_THAT(steps_in(folder), IsEmpty());
  }
  EXPECT_THAT(names_of(folder), IsEmpty());
  save(folder, 5);
  EXPECT_THAT(names_of(folder), ElementsAre("latest", "step-00000005"));
  EXPECT_EQ(text_of_file(folder + "/latest"), "step-00000005\n");
  EXPECT_EQ(incompleteness_of(folder + "/step-00000005"), "");
}

TEST(RunFolder, TheSameStepIsReplaced) {
  const TempFolder temp;
  save(temp.path(), 5);
  put_file(temp / "step-00000005/mark", "of the first");
  save(temp.path(), 5);
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000005"));
  EXPECT_THAT(names_of(temp / "step-00000005"), ElementsAre("manifest.json", "rank-00000.bin", "rank-00001.bin"));
}

TEST(RunFolder, LeftoversOfDeadSavesGoAndLivingSavesStay) {
  const TempFolder temp;
  std::filesystem::create_directories(temp / ".step-00000001.tmp-dead");
  put_file(temp / ".step-00000001.tmp-dead/rank-00000.bin", "half");
  std::filesystem::create_directories(temp / ".step-00000002.old-dead");
  put_file(temp / ".latest.tmp-dead", "half");
  put_file(temp / ".mine", "not ours");
  put_file(temp / "notes.txt", "not ours");
  const PendingCheckpoint living(temp.path(), 3);
  const std::string name = std::filesystem::path(living.temporary_path()).filename();
  EXPECT_THAT(names_of(temp.path()), ElementsAre(".mine", name, "notes.txt"));
  remove_leftovers(temp.path());
  EXPECT_THAT(names_of(temp.path()), ElementsAre(".mine", name, "notes.txt"));
}

TEST(RunFolder, LivingSavesOfThisProcessStayWithoutLocksToo) {
  const TempFolder temp;
  const PendingCheckpoint living(temp.path(), 3);
  std::filesystem::remove(living.temporary_path());
  std::filesystem::create_directory(living.temporary_path());  // another one, that nobody has locked
  remove_leftovers(temp.path());
  EXPECT_TRUE(std::filesystem::exists(living.temporary_path()));
}

TEST(RunFolder, LatestDoesNotGoBackBehindASaveThatWasFasterButWithARunThatDoes) {
  const TempFolder temp;
  save(temp.path(), 90);
  {
    PendingCheckpoint slow(temp.path(), 100);
    save(temp.path(), 101);
    publish(slow);
  }
  EXPECT_EQ(text_of_file(temp / "latest"), "step-00000101\n");
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000090", "step-00000100", "step-00000101"));
  save(temp.path(), 50);  // of a run that was taken up again further back
  EXPECT_EQ(text_of_file(temp / "latest"), "step-00000050\n");
}

TEST(RunFolder, PointersOfLivingSavesStay) {
  const TempFolder temp;
  PendingCheckpoint living(temp.path(), 3);
  const std::string name = std::filesystem::path(living.temporary_path()).filename();
  const std::string pointer = ".latest" + name.substr(name.find(".tmp-"));
  put_file(temp / pointer, "step-00000003\n");  // as publish() begins
  put_file(temp / ".latest.tmp-locked", "");    // and as it goes on, when the folder has its name
  const int fd = ::open((temp / ".latest.tmp-locked").c_str(), O_RDONLY);
  ::flock(fd, LOCK_EX);
  put_file(temp / ".latest.tmp-dead", "");
  const PendingCheckpoint next(temp.path(), 4);
  const std::vector<std::string> names = names_of(temp.path());
  EXPECT_THAT(names, ::testing::IsSupersetOf({pointer, std::string(".latest.tmp-locked")}));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(".latest.tmp-dead")));
  ::close(fd);
}

TEST(RunFolder, KeepsTheLastCompleteOnes) {
  const TempFolder temp;
  for (const int64_t step : {10, 20, 30, 40, 50}) save(temp.path(), step);
  std::filesystem::remove(temp / "step-00000030/rank-00000.bin");  // not complete: does not count
  EXPECT_EQ(remove_old(temp.path(), 40, 2), "");
  EXPECT_THAT(steps_in(temp.path()), ElementsAre("step-00000020", "step-00000030", "step-00000040", "step-00000050"));
  EXPECT_EQ(remove_old(temp.path(), 50, 0), "");
  EXPECT_EQ(steps_in(temp.path()).size(), 4u);
  EXPECT_EQ(remove_old(temp.path(), 50, 1), "");
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000050"));
}

TEST(RunFolder, SaysWhyAFolderIsNoCheckpoint) {
  const TempFolder temp;
  EXPECT_THAT(message_of([&] { read_manifest(temp / "none"); }), HasSubstr("/none] is not there"));
  EXPECT_THAT(message_of([&] { read_manifest(temp.path()); }), HasSubstr("has no manifest.json"));
  save(temp.path(), 1);
  std::filesystem::resize_file(temp / "step-00000001/rank-00001.bin", 100);
  EXPECT_THAT(incompleteness_of(temp / "step-00000001"),
              HasSubstr("rank-00001.bin is truncated: it has 100 bytes and not 8194"));
  std::filesystem::remove(temp / "step-00000001/rank-00001.bin");
  EXPECT_THAT(incompleteness_of(temp / "step-00000001"), HasSubstr("rank-00001.bin is missing"));
}

TEST(RunFolder, AFileInTheWayOfAStepIsAnErrorThatLeavesNothingBehind) {
  const TempFolder temp;
  save(temp.path(), 1);
  put_file(temp / "step-00000002", "a file");
  EXPECT_THAT(message_of([&] { save(temp.path(), 2); }), HasSubstr("cannot rename to"));
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000001", "step-00000002"));
  EXPECT_EQ(text_of_file(temp / "latest"), "step-00000001\n");
}

}  // namespace
}  // namespace shoal::checkpoint
