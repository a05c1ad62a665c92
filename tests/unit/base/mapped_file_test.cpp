#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(MappedFile, HoldsTheBytesAndOutlivesTheName) {
  const testing::TempFolder folder;
  const std::string path = folder.write("a", "abc");
  MappedFile first(path, "here");
  std::filesystem::remove(path);
  const MappedFile file(std::move(first));
  EXPECT_EQ(std::string(file.data(), file.nbytes()), "abc");
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const testing::TempFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", ""), "here").nbytes(), 0u);
}

TEST(MappedFile, SaysWhatCannotBeRead) {
  const testing::TempFolder folder;
  EXPECT_THAT(message_of([&] { MappedFile(folder / "none", "here"); }), HasSubstr("[here] "));
  EXPECT_THAT(message_of([&] { MappedFile(folder.path(), "here"); }), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { MappedFile(folder / "fifo", "here"); }), HasSubstr("is a FIFO, not a regular file"));
}

}  // namespace
}  // namespace shoal
