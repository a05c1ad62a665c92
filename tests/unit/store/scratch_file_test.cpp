#include "store/scratch_file.h"

#include <gtest/gtest.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal {
namespace {

TEST(ScratchFile, IsCountedWhileItIsThereAndLeavesNothing) {
  const testing::TempFolder folder;
  const auto ledger = std::make_shared<Ledger>();
  {
    ScratchFile scratch(folder.path(), scratch_options({}, true, "weights", 5000), ledger, MemoryKind::disk_weights);
    EXPECT_EQ(ledger->line(MemoryKind::disk_weights).nbytes, 8192u);
    EXPECT_EQ(std::filesystem::file_size(scratch.file().path()), 8192u);
    EXPECT_EQ(scratch.file().path().filename(), "weights");
    EXPECT_EQ(scratch.description().find(folder.path()), 0u) << scratch.description();
  }
  EXPECT_EQ(ledger->total_nbytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScratchFile, TakesWhatTheConfigSaysOfTheDisk) {
  const DiskFile::Options options =
      scratch_options({.block_size = 5000, .queue_depth = 3, .threads = 2}, true, "states", 1);
  EXPECT_EQ(options.block_nbytes, 8192u);  // in whole pages
  EXPECT_EQ(options.queue_depth, 3);
  EXPECT_EQ(options.threads, 2);
  EXPECT_TRUE(options.checksum);
}

TEST(ScratchFile, APathThatCannotBeUsedIsNamedAndNothingIsCounted) {
  const auto ledger = std::make_shared<Ledger>();
  const std::string message = testing::message_of([&] {
    ScratchFile("/proc/no place", scratch_options({}, false, "weights", 1), ledger, MemoryKind::disk_weights);
  });
  EXPECT_NE(message.find("/proc/no place"), std::string::npos) << message;
  EXPECT_EQ(ledger->total_nbytes(), 0u);
}

}  // namespace
}  // namespace shoal
