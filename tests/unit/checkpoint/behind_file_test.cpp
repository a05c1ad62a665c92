#include "checkpoint/behind_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <latch>
#include <memory>
#include <system_error>

#include "base/digest.h"
#include "shoal/error.h"
#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::message_of;
using shoal::testing::TempFolder;
using shoal::testing::text_of_file;
using ::testing::HasSubstr;

constexpr int64_t kPage = 4096, kMiB = 1 << 20;

class Window {
 public:
  explicit Window(int64_t nbytes)
      : nbytes_(static_cast<size_t>(nbytes)), memory_(std::aligned_alloc(kPage, nbytes_ + kPage), &std::free) {
    std::memset(memory_.get(), 0x55, nbytes_);  // of an earlier save
  }
  std::span<std::byte> span() { return {static_cast<std::byte*>(memory_.get()), nbytes_}; }

 private:
  size_t nbytes_;
  std::unique_ptr<void, decltype(&std::free)> memory_;
};

// Ranges of such sizes one behind the other, each of bytes that no other has.
struct Content {
  explicit Content(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      text.resize((text.size() + kPage - 1) / kPage * kPage, '\0');
      ranges.push_back({static_cast<int64_t>(text.size()), size});
      for (int64_t i = 0; i < size; ++i) text.push_back(static_cast<char>(i * 31 + i / 251 + size));
    }
  }
  BehindFile::Options options(const std::string& path) const {
    BehindFile::Options options;
    options.path = path;
    options.nbytes = static_cast<int64_t>(text.size());
    options.ranges = ranges;
    return options;
  }
  void put(BehindFile& file) const {
    for (const FileRange& range : ranges) {
      file.put([&](std::byte* to) { std::memcpy(to, text.data() + range.offset, static_cast<size_t>(range.nbytes)); });
    }
  }
  int64_t pages() const { return (static_cast<int64_t>(text.size()) + kPage - 1) / kPage * kPage; }
  int64_t least() const { return BehindFile::least_window(ranges, static_cast<int64_t>(text.size())); }

  std::string text;
  std::vector<FileRange> ranges;
};

TEST(BehindFile, HasTheBytesAndTheChecksumsWhateverTheWindow) {
  const std::vector<std::vector<int64_t>> all_sizes = {{},
                                                       {1},
                                                       {4096},
                                                       {4095, 4097, 1},
                                                       {kMiB + 3, 7, 3 * kMiB, 1, 2 * kMiB, 3 * kMiB - 1, kMiB},
                                                       std::vector<int64_t>(1500, 100)};
  for (const std::vector<int64_t>& sizes : all_sizes) {
    const Content content(sizes);
    for (const int64_t nbytes : {content.least(), content.least() + 3 * kPage, content.pages()}) {
      if (nbytes > content.pages()) continue;
      SCOPED_TRACE(nbytes);
      const TempFolder temp;
      Window window(nbytes);
      BehindFile file(window.span(), content.options(temp / "a"));
      content.put(file);
      const std::vector<uint64_t>& digests = file.wait();
      EXPECT_TRUE(file.is_done());
      EXPECT_EQ(file.written_nbytes(), static_cast<int64_t>(content.text.size()));
      EXPECT_TRUE(text_of_file(temp / "a") == content.text);
      ASSERT_EQ(digests.size(), content.ranges.size());
      for (size_t i = 0; i < digests.size(); ++i) {
        const FileRange& range = content.ranges[i];
        EXPECT_EQ(digests[i], digest_of(content.text.data() + range.offset, static_cast<size_t>(range.nbytes)));
      }
    }
  }
}

TEST(BehindFile, PuttingWaitsForNoDiskWhereTheWindowHoldsTheFile) {
  const Content content({kMiB, kMiB, 5});
  const TempFolder temp;
  Window window(content.pages());
  std::latch held(1);
  BehindFile::Options options = content.options(temp / "a");
  options.before_write = [&](int64_t) { held.wait(); };
  BehindFile file(window.span(), std::move(options));
  content.put(file);  // returns
  EXPECT_FALSE(file.wait_for(0.05));
  EXPECT_EQ(file.written_nbytes(), 0);
  held.count_down();
  file.wait();
  EXPECT_TRUE(text_of_file(temp / "a") == content.text);
}

TEST(BehindFile, PuttingWaitsForTheDiskWhereTheWindowIsFull) {
  const Content content({kMiB, 3 * kMiB, 2 * kMiB, 3 * kMiB, kMiB});
  const TempFolder temp;
  Window window(content.least());
  std::latch held(1);
  BehindFile::Options options = content.options(temp / "a");
  options.before_write = [&](int64_t) { held.wait(); };
  BehindFile file(window.span(), std::move(options));
  auto putting = std::async(std::launch::async, [&] { content.put(file); });
  EXPECT_EQ(putting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  held.count_down();
  putting.get();
  file.wait();
  EXPECT_TRUE(text_of_file(temp / "a") == content.text);
}

TEST(BehindFile, AFailureIsThrownByWaitAndHoldsNobodyUp) {
  const Content content({kMiB, 3 * kMiB, 2 * kMiB, 3 * kMiB, kMiB});
  const TempFolder temp;
  Window window(content.least());
  BehindFile::Options options = content.options(temp / "a");
  options.before_write = [](int64_t offset) {
    if (offset > 0) throw Error("checkpoint", "the disk is full");
  };
  BehindFile file(window.span(), std::move(options));
  content.put(file);
  EXPECT_THAT(message_of([&] { file.wait(); }), HasSubstr("the disk is full"));
  EXPECT_TRUE(file.is_done());
}

TEST(BehindFile, AThreadThatCannotBeStartedIsAnErrorAndEndsTheOthers) {
  const Content content({100});
  for (const int started : {0, 1, 2}) {
    const TempFolder temp;
    Window window(content.pages());
    BehindFile::Options options = content.options(temp / "a");
    options.before_thread = [started](int thread) {
      if (thread == started) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    };
    EXPECT_THAT(message_of([&] { BehindFile(window.span(), std::move(options)); }),
                HasSubstr("cannot start a thread to write " + temp / "a"))
        << started;
  }
}

TEST(BehindFile, AFullDiskIsAnError) {
  const Content content({100});
  Window window(content.pages());
  BehindFile file(window.span(), content.options("/dev/full"));
  content.put(file);
  EXPECT_THAT(message_of([&] { file.wait(); }), HasSubstr("cannot write /dev/full: No space left on device (ENOSPC)"));
}

TEST(BehindFile, CanBeGivenUpAtAnyTime) {
  const Content content({kMiB, kMiB});
  for (const int puts : {0, 1, 2}) {
    const TempFolder temp;
    Window window(content.pages());
    std::latch held(1);
    BehindFile::Options options = content.options(temp / "a");
    options.before_write = [&](int64_t) { held.wait(); };
    auto file = std::make_unique<BehindFile>(window.span(), std::move(options));
    for (int i = 0; i < puts; ++i) file->put([](std::byte* to) { *to = {}; });
    auto end = std::async(std::launch::async, [&] { file.reset(); });
    held.count_down();
    EXPECT_EQ(end.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
}

}  // namespace
}  // namespace shoal::checkpoint
