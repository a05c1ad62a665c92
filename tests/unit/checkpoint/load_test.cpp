#include "checkpoint/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/rank_file.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/save.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::on_ranks;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;

void save_filled(const std::string& folder, int world, int64_t step, float salt = 0) {
  on_ranks(world, [&](Group& group) {
    FakeState state(group.rank(), world);
    state.fill(salt);
    state.progress_.applied_steps = step;
    state.progress_.loss_scale = 1024;
    save_state(state.source(), group, {folder, step, 0, {{"position", "17"}}});
  });
}

std::string said_on_load(FakeState& state, const std::string& path) {
  auto world = make_single_group();
  return message_of([&] { load_state(state.sink(), *world, path); });
}

TEST(Load, AnyWorldReadsWhatAnyWorldSaved) {
  for (const int saved_world : {1, 2, 3, 4}) {
    const TempFolder temp;
    save_filled(temp.path(), saved_world, 9);
    for (const int world : {1, 2, 3, 4}) {
      for (const bool whole : {false, true}) {
        on_ranks(world, [&](Group& group) {
          FakeState state(group.rank(), world, whole), expected(0, 1);
          expected.fill();
          EXPECT_FALSE(state.keeps_values_of(expected));
          const Restored restored = load_state(state.sink(), group, temp.path());
          EXPECT_TRUE(state.keeps_values_of(expected)) << saved_world << " to " << world;
          EXPECT_EQ(restored.loaded.path, temp / "step-00000009");
          EXPECT_EQ(restored.loaded.step, 9);
          EXPECT_EQ(restored.loaded.saved_world, saved_world);
          EXPECT_EQ(restored.loaded.extra.at("position"), "17");
          EXPECT_EQ(restored.progress.applied_steps, 9);
          EXPECT_EQ(restored.progress.loss_scale, 1024);
          // Each rank's own numbers, where the ranks are the same.
          EXPECT_EQ(restored.progress.random_state,
                    world == saved_world ? state.progress_.random_state : std::vector<uint8_t>{});
        });
      }
    }
  }
}

TEST(Load, AFolderMeansItsLatestAndAPathMeansThatOne) {
  const TempFolder temp;
  save_filled(temp.path(), 1, 1, 0.5f);
  save_filled(temp.path(), 1, 2, 0.75f);
  FakeState state(0, 1), first(0, 1), second(0, 1);
  first.fill(0.5f);
  second.fill(0.75f);
  EXPECT_EQ(said_on_load(state, temp.path()), "");
  EXPECT_TRUE(state.keeps_values_of(second));
  EXPECT_EQ(said_on_load(state, temp / "step-00000001/"), "");
  EXPECT_TRUE(state.keeps_values_of(first));
}

TEST(Load, NamesEveryParameterThatDoesNotFitBeforeAnythingIsWritten) {
  const TempFolder temp;
  save_filled(temp.path(), 1, 1);
  FakeState state(0, 1);
  const FakeState untouched(0, 1);
  state.params_[0].name = "renamed";
  state.params_[1].shape = {7, 5};
  const std::string said = said_on_load(state, temp.path());
  EXPECT_THAT(said,
              HasSubstr("it has no renamed; the model has no wte; other shapes: block.w ([5, 7] there, [7, 5] here)"));
  EXPECT_TRUE(state.keeps_values_of(untouched));
}

TEST(Load, MomentsAreNeededOnlyWhereTheyAreKept) {
  const TempFolder temp;
  save_filled(temp.path(), 1, 1);
  FakeState plain(0, 1, false, 0), expected(0, 1);
  expected.fill();
  EXPECT_EQ(said_on_load(plain, temp.path()), "");
  EXPECT_TRUE(plain.keeps_values_of(expected));

  auto world = make_single_group();
  save_state(plain.source(), *world, {temp.path(), 2, 0, {}});
  FakeState state(0, 1);
  EXPECT_THAT(said_on_load(state, temp.path()),
              HasSubstr("it has no first_moment of wte, block.w, scale. Use the optimizer"));
}

TEST(Load, WhereTrainingStartsMomentsAreZero) {
  const TempFolder temp;
  auto world = make_single_group();
  FakeState weights(0, 1, false, 0);
  weights.fill();
  StateSource source = weights.source();
  source.weights_only = true;
  save_state(source, *world, {temp.path(), 0, 0, {}});
  FakeState state(0, 1), expected(0, 1);
  expected.fill();
  for (auto& [key, values] : expected.values_) {
    if (key.second != StateKind::weight) values.assign(values.size(), 0.0f);
  }
  EXPECT_TRUE(load_state(state.sink(), *world, temp.path()).weights_only);
  EXPECT_TRUE(state.keeps_values_of(expected));
}

TEST(Load, DamageIsFoundOnlyInWhatIsRead) {
  const TempFolder temp;
  save_filled(temp.path(), 2, 1);
  const std::string path = temp / "step-00000001";
  const Manifest manifest = read_manifest(path);
  const Piece* piece = nullptr;  // a second moment of rank 1's file
  for (const Piece& one : manifest.pieces) {
    if (one.file == 1 && one.kind == StateKind::second_moment) piece = &one;
  }
  ASSERT_NE(piece, nullptr);
  shoal::testing::flip_bit(path + "/rank-00001.bin", piece->offset);
  FakeState weights(0, 1, false, 0), state(0, 1);
  EXPECT_EQ(said_on_load(weights, temp.path()), "");
  EXPECT_THAT(said_on_load(state, temp.path()), HasSubstr(manifest.describe(*piece)));
  on_ranks(2, [&](Group& group) {
    FakeState half(group.rank(), 2);
    EXPECT_THAT(message_of([&] { load_state(half.sink(), group, path); }),
                HasSubstr("[checkpoint load " + path + "] rank 1: " + path + "/rank-00001.bin: "));
  });
}

TEST(Load, OnlyTheKeptPartsOfAPieceArePassedOn) {
  const TempFolder temp;
  save_filled(temp.path(), 1, 1);
  FakeState state(0, 1), expected(0, 1);
  expected.fill();
  checkpoint::StateSink sink = state.sink();
  sink.runs = {{0, StateKind::weight, 0, 4}, {0, StateKind::weight, 10, 5}};
  state.kept_ = sink.runs;
  std::vector<int64_t> begins;
  const auto write = sink.write;
  sink.write = [&](const StateRun& part, const float* values) { begins.push_back(part.begin), write(part, values); };
  auto world = make_single_group();
  load_state(sink, *world, temp.path());
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 10}));
  EXPECT_TRUE(state.keeps_values_of(expected));
}

TEST(Load, SaysWhenThereIsNothingToLoad) {
  const TempFolder temp;
  FakeState state(0, 1);
  EXPECT_THAT(said_on_load(state, temp.path()), HasSubstr("holds no complete checkpoint"));
  EXPECT_THAT(said_on_load(state, temp / "none"), HasSubstr("/none is not there"));
  std::filesystem::create_directories(temp / "step-00000003");
  EXPECT_THAT(said_on_load(state, temp / "step-00000003"), HasSubstr("has no manifest.json"));
}

}  // namespace
}  // namespace shoal::checkpoint
