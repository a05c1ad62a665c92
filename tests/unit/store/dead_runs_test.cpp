#include "store/dead_runs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temp_folder.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeadRuns, NamesThatAreNoRunsAreLeftAlone) {
  const TempFolder temp;
  for (const char* name : {"shoal-", "shoal-node-1", "shoal-node-x-ab", "shoal-node-1-XY", "shoal--1-ab", "shoal-1-ab",
                           "notshoal-node-1-ab", "data"}) {
    temp.write(std::string(name) + "/lock", "");
  }
  temp.write("shoal-node-1-ab", "a file");
  std::filesystem::create_directory(temp / "elsewhere");
  temp.write("elsewhere/lock", "");
  std::filesystem::create_symlink(temp / "elsewhere", temp / "shoal-node-2-ab");
  const auto before = names_of(temp.path());
  EXPECT_THAT(remove_dead_runs(temp.path(), "node"), IsEmpty());
  EXPECT_EQ(names_of(temp.path()), before);
  EXPECT_THAT(names_of(temp / "elsewhere"), ElementsAre("lock"));
}

TEST(DeadRuns, OnlyThisHostsDeadOnesGo) {
  const TempFolder temp;
  temp.write("shoal-node-1-ab/lock", "");
  temp.write("shoal-node-1-ab/states", std::string(8192, 'x'));
  temp.write("shoal-node-2-ab/lock", "");
  temp.write("shoal-node-b-3-ab/lock", "");
  const std::string held = temp.write("shoal-node-4-ab/lock", "");
  const int fd = ::open(held.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THAT(remove_dead_runs(temp.path(), "node"),
              ElementsAre("[disk " + temp.path() +
                              "] shoal-node-b-3-ab is of another host, node-b, and was left alone. Remove it if no run "
                              "uses it there.",
                          HasSubstr("removed 2 folders of dead runs; 8")));
  EXPECT_THAT(names_of(temp.path()), ElementsAre("shoal-node-4-ab", "shoal-node-b-3-ab"));
  ::close(fd);
}

TEST(DeadRuns, ARemovalThatWasCutShortIsFinished) {
  const TempFolder temp;
  std::filesystem::create_directory(temp / "shoal-node-1-ab");  // all is gone but the folder
  temp.write("shoal-node-2-ab/lock", "");                       // all but the lock
  remove_dead_runs(temp.path(), "node");
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

TEST(DeadRuns, AFolderWithoutItsLockIsMentioned) {
  const TempFolder temp;
  temp.write("shoal-node-1-ab/states", "x");
  EXPECT_THAT(
      remove_dead_runs(temp.path(), "node"),
      ElementsAre("[disk " + temp.path() +
                  "] whether the run of shoal-node-1-ab is alive cannot be told; it was left alone. Remove it if "
                  "no run uses it."));
  EXPECT_EQ(text_of_file(temp / "shoal-node-1-ab/states"), "x");
}

TEST(DeadRuns, AFolderOnItsWayIsLeftUntilItIsOld) {
  const TempFolder temp;
  temp.write(".shoal-new-node-1-ab/lock", "");
  temp.write(".shoal-new-node-2-ab/lock", "");
  const timespec old[2] = {{.tv_sec = ::time(nullptr) - 7200, .tv_nsec = 0},
                           {.tv_sec = ::time(nullptr) - 7200, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (temp / ".shoal-new-node-2-ab").c_str(), old, 0), 0);
  EXPECT_THAT(remove_dead_runs(temp.path(), "node"), IsEmpty());
  EXPECT_THAT(names_of(temp.path()), ElementsAre(".shoal-new-node-1-ab"));
}

}  // namespace
}  // namespace shoal::testing
