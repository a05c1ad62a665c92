#include "store/io_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace shoal::testing {
namespace {

TEST(DiskError, NamesThePathTheCauseAndWhatToDo) {
  EXPECT_STREQ(disk_error("/nvme/run", "make the folder", EACCES).what(),
               "[disk /nvme/run] cannot make the folder: Permission denied (EACCES). Check who may write there, or set "
               "nvme_path to another folder.");
  EXPECT_STREQ(disk_error("/nvme/run", "make the file", EEXIST).what(),
               "[disk /nvme/run] cannot make the file: File exists (EEXIST).");
}

TEST(DiskError, AnUnknownNumberIsSaidAsOne) { EXPECT_EQ(words_of_errno(7777), "error 7777"); }

}  // namespace
}  // namespace shoal::testing
