#include "store/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "message_of.h"
#include "store/disk_file.h"
#include "temp_folder.h"
#include "unit/store/in_child.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(ScratchFolder, IsNamedByHostAndProcessAndGoneAtTheEnd) {
  const TempFolder temp;
  {
    const ScratchFolder folder(temp / "deep/nvme", "node7");
    EXPECT_THAT(folder.path().string(),
                MatchesRegex(temp / fmt::format("deep/nvme/shoal-node7-{}-[0-9a-f]{{16}}", ::getpid())));
    EXPECT_THAT(names_of(folder.path()), ElementsAre("lock"));
    EXPECT_THAT(folder.notes(), IsEmpty());
    struct stat info {};
    ASSERT_EQ(::stat(folder.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0077, 0u);
    put_file(folder.path() / "states", "x");
    std::filesystem::create_directory(folder.path() / "more");
    put_file(folder.path() / "more/states", "x");
  }
  EXPECT_THAT(names_of(temp / "deep/nvme"), IsEmpty());
}

TEST(ScratchFolder, TwoRunsOnOnePathDoNotTouchEachOther) {
  const TempFolder temp;
  auto first = std::make_unique<ScratchFolder>(temp.path());
  put_file(first->path() / "states", "x");
  const int code = in_child([&] {
    const ScratchFolder second(temp.path());
    EXPECT_THAT(second.notes(), IsEmpty());
    EXPECT_NE(second.path(), first->path());
    put_file(second.path() / "states", "x");
    EXPECT_EQ(names_of(temp.path()).size(), 2u);
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(names_of(first->path()), ElementsAre("lock", "states"));
  const ScratchFolder third(temp.path());
  EXPECT_EQ(names_of(temp.path()).size(), 2u);
  first.reset();
  EXPECT_THAT(names_of(temp.path()), ElementsAre(third.path().filename().string()));
}

TEST(ScratchFolder, WhatAKilledRunLeftIsRemovedByTheNext) {
  const TempFolder temp;
  const int code = in_child([&]() -> int {
    const ScratchFolder folder(temp.path(), "node");
    const DiskFile file({.folder = folder.path(), .name = "states", .nbytes = 1 << 20});
    ::kill(::getpid(), SIGKILL);
    return 1;
  });
  EXPECT_EQ(code, 128 + SIGKILL);
  ASSERT_EQ(names_of(temp.path()).size(), 1u);
  {
    const ScratchFolder next(temp.path(), "node");
    EXPECT_THAT(next.notes(),
                ElementsAre(MatchesRegex("\\[disk " + temp.path() +
                                         "\\] removed 1 folder of dead runs; 10[0-9]+ bytes \\(1(.0)? MiB\\) "
                                         "came back.")));
    EXPECT_THAT(names_of(temp.path()), ElementsAre(next.path().filename().string()));
  }
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

TEST(ScratchFolder, AForkedChildLeavesItsParentsFolder) {
  const TempFolder temp;
  std::unique_ptr<ScratchFolder> folder = std::make_unique<ScratchFolder>(temp.path());
  EXPECT_EQ(in_child([&] {
              folder.reset();
              return 0;
            }),
            0);
  EXPECT_THAT(names_of(folder->path()), ElementsAre("lock"));
}

// As weights of parameters do that live as long as an interpreter. Its own, and not its parent's.
TEST(ScratchFolder, AProcessThatEndsTakesWhatItStillHolds) {
  const TempFolder temp;
  const ScratchFolder of_parent(temp.path());
  const int code = in_child([&]() -> int {
    static ScratchFolder* const held = new ScratchFolder(temp.path());
    put_file(held->path() / "weights", "x");
    if (names_of(temp.path()).size() != 2) return 98;
    std::exit(0);
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(names_of(temp.path()), ElementsAre(of_parent.path().filename().string()));
}

TEST(ScratchFolder, APathThatCannotBeUsedIsSaid) {
  const TempFolder temp;
  temp.write("file", "x");
  EXPECT_EQ(message_of([&] { ScratchFolder folder(temp / "file"); }),
            "[disk " + (temp / "file") + "] cannot make the folder: Not a directory (ENOTDIR). Check nvme_path.");
  EXPECT_THAT(message_of([&] { ScratchFolder folder("/proc/nvme"); }),
              StartsWith("[disk /proc/nvme] cannot make the folder: "));
}

}  // namespace
}  // namespace shoal::testing
