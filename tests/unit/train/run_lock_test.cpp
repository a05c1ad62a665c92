#include "train/run_lock.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunLock, TheSecondRunIsToldWhoHasTheFolder) {
  const TempFolder folder;
  check_unlocked(folder.path());
  auto first = std::make_unique<RunLock>(folder.path());
  const auto names_this = AllOf(HasSubstr("[--out] " + folder.path() + " is in use by another run, process " +
                                          std::to_string(::getpid()) + " on "),
                                HasSubstr("give another folder."));
  EXPECT_THAT(message_of([&] { RunLock second(folder.path()); }), names_this);
  EXPECT_THAT(message_of([&] { check_unlocked(folder.path()); }), names_this);
  first.reset();
  EXPECT_EQ(message_of([&] { check_unlocked(folder.path()); }), "");
  EXPECT_EQ(message_of([&] { RunLock second(folder.path()); }), "");
}

TEST(RunLock, ADeadRunsLockDoesNotCount) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder.path());
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(message_of([&] { RunLock second(folder.path()); }), HasSubstr("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(message_of([&] { RunLock second(folder.path()); }), "");
}

TEST(RunLock, AFolderThatIsNotThereIsFree) { check_unlocked("/nowhere/at/all"); }

}  // namespace
}  // namespace shoal::train
