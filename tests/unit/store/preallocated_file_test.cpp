#include "store/preallocated_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message_of.h"
#include "store/disk_file.h"
#include "temp_folder.h"
#include "unit/store/aligned_memory.h"
#include "unit/store/in_child.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

TEST(PreallocatedFile, TakesItsSpaceAtOnce) {
  const TempFolder temp;
  const PreallocatedFile file = make_preallocated_file(temp / "states", 1 << 20);
  struct stat info {};
  ASSERT_EQ(::fstat(file.fd, &info), 0);
  EXPECT_EQ(info.st_size, 1 << 20);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
  EXPECT_EQ(info.st_mode & 0077, 0u) << "nobody else reads weights";
  EXPECT_EQ((::fcntl(file.fd, F_GETFL) & O_DIRECT) != 0, file.direct);
  EXPECT_EQ(file.direct, file.why_not_direct.empty());
  ::close(file.fd);
}

TEST(PreallocatedFile, LeavesAFileOfThatNameAlone) {
  const TempFolder temp;
  put_file(temp / "states", "somebody's");
  EXPECT_EQ(message_of([&] { make_preallocated_file(temp / "states", 4096); }),
            "[disk " + (temp / "states") + "] cannot make the file: File exists (EEXIST).");
  EXPECT_EQ(text_of_file(temp / "states"), "somebody's");
  EXPECT_EQ(message_of([&] { make_preallocated_file(temp / "none/states", 4096); }),
            "[disk " + (temp / "none/states") +
                "] cannot make the file: No such file or directory (ENOENT). Check nvme_path.");
}

// Real disks that are small, or know no O_DIRECT, mounted for a child alone.
class SmallDisk : public ::testing::Test {
 protected:
  void expect_in_child(const std::string& type, const std::string& options, const std::function<void()>& body) {
    const int code = in_child([&] {
      if (!mount_for_this_process(type, temp.path(), options)) return kCannotMount;
      body();
      return 0;
    });
    if (code == kCannotMount) GTEST_SKIP() << "a " << type << " cannot be mounted here";
    EXPECT_EQ(code, 0);
  }
  const TempFolder temp;
};

TEST_F(SmallDisk, AFileThatDoesNotFitIsRefusedBeforeTraining) {
  expect_in_child("tmpfs", "size=4m", [&] {
    EXPECT_THAT(
        message_of([&] { make_preallocated_file(temp / "states", 8 << 20); }),
        MatchesRegex("\\[disk .*/states\\] cannot take 8388608 bytes \\(8 MiB\\), [0-9]+ bytes \\([34](.[0-9])? "
                     "MiB\\) are free: No space left on device \\(ENOSPC\\). Free some space there, or set "
                     "nvme_path to another disk."));
    EXPECT_THAT(names_of(temp.path()), IsEmpty());
  });
}

TEST_F(SmallDisk, AFileThatFitsIsFullyUsable) {
  expect_in_child("tmpfs", "size=4m", [&] {
    DiskFile file({.folder = temp.path(), .name = "states", .nbytes = 3 << 20, .block_nbytes = 64 << 10});
    const AlignedMemory written = random_memory(3 << 20, 1);
    const AlignedMemory read(3 << 20);
    // Others take what is left, and change nothing for us.
    std::ofstream ballast(temp / "ballast", std::ios::binary);
    while (ballast.write("xxxxxxxxxxxxxxxx", 16).flush()) {
    }
    file.write(0, written.data(), written.nbytes()).wait();
    file.read(0, read.data(), read.nbytes()).wait();
    EXPECT_TRUE(same_bytes(written, read));
  });
}

TEST_F(SmallDisk, WithoutODirectAndFallocateThePageCacheServesAndItIsSaid) {
  expect_in_child("ramfs", "", [&] {
    for (const bool use_uring : {false, true}) {
      DiskFile file({.folder = temp.path(),
                     .name = "states",
                     .nbytes = 1 << 20,
                     .block_nbytes = 64 << 10,
                     .checksum = true,
                     .use_uring = use_uring});
      EXPECT_FALSE(file.is_direct());
      EXPECT_THAT(file.description(), ::testing::HasSubstr(", through the page cache (Invalid argument (EINVAL))"));
      const AlignedMemory written = random_memory(1 << 20, 1);
      const AlignedMemory read(1 << 20);
      file.read(0, read.data(), read.nbytes()).wait();
      file.write(0, written.data(), written.nbytes()).wait();
      file.read(0, read.data(), read.nbytes()).wait();
      EXPECT_TRUE(same_bytes(written, read));
    }
  });
}

}  // namespace
}  // namespace shoal::testing
