#include "checkpoint/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::flip_bit;
using shoal::testing::message_of;
using shoal::testing::names_of;
using shoal::testing::put_file;
using shoal::testing::TempFolder;
using shoal::testing::text_of_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DurableFile, WhatIsWrittenIsReadAndGapsAreZero) {
  const TempFolder temp;
  {
    DurableFile file = DurableFile::create(temp / "a");
    file.write_at(4, "tail", 4);
    file.write_at(0, "he", 2);
    file.sync();
  }
  EXPECT_EQ(read_text(temp / "a"), std::string("he\0\0tail", 8));
  write_text(temp / "a", "short");
  EXPECT_EQ(read_text(temp / "a"), "short");
}

TEST(DurableFile, ErrorsNameTheFileAndTheCause) {
  const TempFolder temp;
  EXPECT_THAT(message_of([&] { DurableFile::open_read(temp / "none"); }),
              HasSubstr("cannot open " + temp.path() + "/none: No such file or directory (ENOENT)"));
  EXPECT_THAT(message_of([&] { DurableFile::create(temp / "no/such"); }), HasSubstr("cannot create"));
  EXPECT_THAT(message_of([] { write_text("/dev/full", "x"); }),
              HasSubstr("cannot write /dev/full: No space left on device (ENOSPC). Free some space"));
}

TEST(DurableFile, ReadingBeyondTheEndIsAnError) {
  const TempFolder temp;
  put_file(temp / "a", "12345");
  const DurableFile file = DurableFile::open_read(temp / "a");
  char bytes[8];
  EXPECT_THAT(message_of([&] { file.read_at(2, bytes, 8); }), HasSubstr("ends at byte 5, and 5 more were expected"));
}

TEST(DurableFile, MakesFoldersAndRefusesAFileInTheWay) {
  const TempFolder temp;
  make_folders(temp / "a/b/c/");
  make_folders(temp / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(temp / "a/b/c"));
  put_file(temp / "file", "");
  EXPECT_THAT(message_of([&] { make_folders(temp / "file"); }), HasSubstr("cannot make the folder"));
}

TEST(DurableFile, ReplaceExchangesFoldersAndOverwritesFiles) {
  const TempFolder temp;
  make_folders(temp / "new");
  make_folders(temp / "old");
  put_file(temp / "new/n", "");
  put_file(temp / "old/o", "");
  replace(temp / "new", temp / "old");
  EXPECT_THAT(names_of(temp / "old"), ElementsAre("n"));
  EXPECT_THAT(names_of(temp / "new"), ElementsAre("o"));
  replace(temp / "old", temp / "third");
  EXPECT_THAT(names_of(temp.path()), ElementsAre("new", "third"));
  put_file(temp / "a", "a");
  put_file(temp / "b", "b");
  replace(temp / "a", temp / "b");
  EXPECT_EQ(text_of_file(temp / "b"), "a");
  EXPECT_FALSE(std::filesystem::exists(temp / "a"));
}

}  // namespace
}  // namespace shoal::checkpoint
