#include "checkpoint/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

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

// Writers that are all refused before one of them has turned to the page cache.
TEST(DurableFile, ThreadsWhoseDirectWritesAreRefusedTogetherAllWrite) {
  constexpr int64_t kPage = kDirectAlignment;
  constexpr int kThreads = 3;
  const TempFolder temp;
  std::barrier all_refused(kThreads);
  std::atomic<int> refusals = 0;
  const auto write = [&](int fd, const void* data, size_t nbytes, int64_t offset) -> int64_t {
    thread_local bool was_refused = false;
    if (std::exchange(was_refused, true)) return ::pwrite(fd, data, nbytes, offset);
    ++refusals;
    all_refused.arrive_and_wait();
    errno = EINVAL;
    return -1;
  };
  {
    DurableFile file = DurableFile::create_sized(temp / "a", kThreads * kPage, write);
    std::array<std::string, kThreads> said;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const std::string page(kPage, static_cast<char>('a' + i));  // not aligned: no direct write would take it
        said[static_cast<size_t>(i)] = message_of([&] { file.write_at(i * kPage, page.data(), page.size()); });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(said, ::testing::Each(""));
  }
  EXPECT_EQ(refusals, kThreads);
  EXPECT_EQ(text_of_file(temp / "a"), std::string(kPage, 'a') + std::string(kPage, 'b') + std::string(kPage, 'c'));
}

TEST(DurableFile, AWriteThatIsRefusedTwiceIsAnError) {
  const TempFolder temp;
  int calls = 0;
  DurableFile file = DurableFile::create_sized(temp / "a", 0, [&](int, const void*, size_t, int64_t) -> int64_t {
    ++calls;
    errno = EINVAL;
    return -1;
  });
  EXPECT_THAT(message_of([&] { file.write_at(0, "x", 1); }), HasSubstr("(EINVAL)"));
  EXPECT_EQ(calls, 2);
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
