#include "checkpoint/save_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "shoal/error.h"
#include "training/outcome.h"

namespace shoal::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMebi = 1 << 20;
constexpr size_t kWholePicture = 100 * kMebi;

size_t with_most(const PictureNeed& need, int64_t most) {
  return needed_memory(need, [=] { return static_cast<size_t>(most); });
}

TEST(SaveMemory, IsTheWholeStateWhereItMayBeTaken) {
  EXPECT_EQ(with_most({.state = 100'000, .least = 8192}, 1 << 30), 102'400u) << "in whole pages";
  EXPECT_EQ(with_most({.state = 0, .least = 0}, 1 << 30), 0u);
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192}, 50 * kMebi), size_t{50 * kMebi}) << "what there is";
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 30 * kMebi}, 0), size_t{30 * kMebi}) << "never less than works";
}

TEST(SaveMemory, IsAtMostWhatWasAskedFor) {
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .asked = 30 * kMebi}, 1 << 30), size_t{30 * kMebi});
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .asked = 1 << 30}, 0), kWholePicture)
      << "no more than it needs";
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .asked = 1}, 0), size_t{20 * kMebi});
}

TEST(SaveMemory, IsKeptFromSaveToSave) {
  const size_t half = kWholePicture / 2;
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .held = kWholePicture}, 0), kWholePicture);
  EXPECT_EQ(with_most({.state = 90 * kMebi, .least = 8192, .held = kWholePicture}, 0), kWholePicture);
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .held = half}, 1 << 30), half) << "all that might be taken";
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 60 * kMebi, .held = half}, 1 << 30), kWholePicture)
      << "too little now";
  EXPECT_EQ(with_most({.state = 100 * kMebi, .least = 8192, .asked = 30 * kMebi, .held = 30 * kMebi}, 1 << 30),
            size_t{30 * kMebi});
}

TEST(SaveMemory, ThatCannotBeHadSaysWhatToSet) {
  const std::string said = shoal::testing::message_of(
      [] { take_memory(1 << 20, 1 << 20, [](size_t) -> std::shared_ptr<std::byte> { throw std::bad_alloc(); }); });
  EXPECT_THAT(said, HasSubstr("there are no 1 MiB of host memory"));
  EXPECT_THAT(said, HasSubstr("shoal.save_memory"));
  EXPECT_THAT(said, HasSubstr("--save-and-wait"));
}

TEST(SaveMemory, IsLessWhereLessCanBeHad) {
  const auto with = [](size_t most, size_t least) {
    return take_memory(kWholePicture, least,
                       [=](size_t nbytes) {
                         if (nbytes > most) throw std::bad_alloc();
                         return std::make_shared<std::byte>();
                       })
        .nbytes;
  };
  EXPECT_EQ(with(kWholePicture, 8192), kWholePicture);
  EXPECT_EQ(with(30 * kMebi, 8192), size_t{25 * kMebi});
  EXPECT_EQ(with(8192, 8192), 8192u);
  EXPECT_THROW(with(4096, 8192), Error);
  EXPECT_THROW(with(30 * kMebi, kWholePicture), Error) << "what was asked for is not made less";
}

}  // namespace
}  // namespace shoal::checkpoint
