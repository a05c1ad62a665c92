#include "checkpoint/state_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "checkpoint/save.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;

TEST(StateReader, ReadsAnyRangeAcrossPieces) {
  const TempFolder temp;
  shoal::testing::on_ranks(3, [&](Group& group) {
    FakeState state(group.rank(), 3);
    state.fill();
    save_state(state.source(), group, {temp.path(), 1, 0, {}});
  });
  FakeState expected(0, 1);
  expected.fill();
  StateReader reader(temp / "step-00000001");
  for (const auto& [key, values] : expected.values_) {
    const auto numel = static_cast<int64_t>(values.size());
    for (int64_t begin = 0; begin < numel; begin += 7) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, (numel - begin) / 2, numel - begin}) {
        std::vector<float> read(static_cast<size_t>(count));
        reader.read(key.first, key.second, begin, count, read.data());
        EXPECT_EQ(read, std::vector<float>(values.begin() + begin, values.begin() + begin + count));
      }
    }
  }
  float value = 0;
  EXPECT_THROW(reader.read(2, StateKind::first_moment, 0, 1, &value), BrokenPromise);  // of a frozen parameter
  EXPECT_THROW(reader.read(1, StateKind::weight, 35, 1, &value), BrokenPromise);
}

TEST(StateReader, RefusesWhatIsDamagedOrNotThere) {
  const TempFolder temp;
  EXPECT_THAT(message_of([&] { StateReader reader(temp / "none"); }), HasSubstr("is not there"));
  const FakeState state(0, 1);
  save_state(state.source(), *make_single_group(), {temp.path(), 1, 0, {}});
  shoal::testing::flip_bit(temp / "step-00000001/rank-00000.bin", 0);
  StateReader reader(temp / "step-00000001");
  float value = 0;
  EXPECT_THAT(message_of([&] { reader.read(0, StateKind::weight, 50, 1, &value); }),
              HasSubstr("weight of wte, elements 0 to 110"));
}

}  // namespace
}  // namespace shoal::checkpoint
