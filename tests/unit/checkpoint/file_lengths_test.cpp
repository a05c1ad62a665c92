#include "checkpoint/file_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "checkpoint/load.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/save.h"
#include "checkpoint/state_reader.h"
#include "checkpoint/verify.h"
#include "message_of.h"
#include "temp_folder.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::on_ranks;
using shoal::testing::TempFolder;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// What each of those who read a checkpoint says when something was done to the file of the last rank. A load keeps only
// weights of one rank's: what it needs may be whole all the same.
void expect_refused(const std::string& what, const std::function<void(const std::string&, int64_t)>& harm) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    FakeState state(group.rank(), 2);
    state.fill();
    save_state(state.source(), group, {temp.path(), 1, 0, {}});
  });
  const std::string path = temp / "step-00000001", file = path + "/rank-00001.bin";
  harm(file, static_cast<int64_t>(std::filesystem::file_size(file)));
  EXPECT_THAT(verify(path), Not(SizeIs(0))) << what;
  EXPECT_THAT(verify(path), Each(HasSubstr("rank-00001.bin " + what)));
  EXPECT_THAT(incompleteness_of(path), HasSubstr(file + " " + what));
  EXPECT_THAT(message_of([&] { StateReader reader(path); }), HasSubstr(file + " " + what));
  FakeState weights(0, 1, false, 0);
  const FakeState untouched(0, 1, false, 0);
  auto world = make_single_group();
  EXPECT_THAT(message_of([&] { load_state(weights.sink(), *world, path); }), HasSubstr(file + " " + what));
  EXPECT_TRUE(weights.keeps_values_of(untouched));
}

TEST(FileLengths, DecideForAllWhoRead) {
  expect_refused("is truncated: it has ", [](const std::string& file, int64_t nbytes) {
    std::filesystem::resize_file(file, static_cast<uintmax_t>(nbytes - 1));
  });
  expect_refused("has ", [](const std::string& file, int64_t nbytes) {
    std::filesystem::resize_file(file, static_cast<uintmax_t>(nbytes + 1));
  });
  expect_refused("is missing", [](const std::string& file, int64_t) { std::filesystem::remove(file); });
  expect_refused("is not a regular file", [](const std::string& file, int64_t) {
    std::filesystem::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  });
  expect_refused("is not a regular file", [](const std::string& file, int64_t) {
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
  });
}

}  // namespace
}  // namespace shoal::checkpoint
