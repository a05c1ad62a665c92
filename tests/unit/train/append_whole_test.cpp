#include "train/append_whole.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "temp_folder.h"

namespace shoal::train {
namespace {

int opened(const std::string& path) { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666); }

TEST(AppendWhole, Appends) {
  const testing::TempFolder folder;
  const int fd = opened(folder / "file");
  EXPECT_EQ(append_whole(fd, "one\n"), 0);
  EXPECT_EQ(append_whole(fd, ""), 0);
  EXPECT_EQ(append_whole(fd, "two\n"), 0);
  ::close(fd);
  EXPECT_EQ(folder.read("file"), "one\ntwo\n");
}

TEST(AppendWhole, LeavesNoHalfOfWhatDoesNotFit) {
  const testing::TempFolder folder;
  const int fd = opened(folder / "file");
  EXPECT_EQ(append_whole(fd, "whole\n"), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{8, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(append_whole(fd, "does not fit\n"), EFBIG);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(append_whole(fd, "fits\n"), 0);
  ::close(fd);
  EXPECT_EQ(folder.read("file"), "whole\nfits\n");
}

TEST(AppendWhole, GivesTheReason) { EXPECT_EQ(append_whole(-1, "x"), EBADF); }

}  // namespace
}  // namespace shoal::train
