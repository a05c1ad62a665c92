#include "layout/flat_layout.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

std::vector<UnitSpec> small_model() {
  return {{"embed", {{"wte", {10, 33}, DType::bf16, true, 0}}, {}},
          {"block",
           {{"w", {200, 7}, DType::bf16, true, 0},
            {"b", {7}, DType::bf16, true, 1},
            {"frozen", {129}, DType::bf16, false, 0},
            {"norm", {1}, DType::f32, true, 1},
            {"none", {0, 4}, DType::f32, true, 1}},
           {}},
          {"head", {}, {0}}};
}

TEST(FlatLayout, GoldenTextForAMixedModel) {
  const ModelLayout layout = lay_out(small_model(), {.mesh = 3, .persistence_threshold = 100});
  EXPECT_EQ(to_text(layout),
            "world 3\n"
            "unit embed\n"
            "  flat bf16 trainable numel 384 shard 128\n"
            "    param 0 at 0 numel 330\n"
            "unit block\n"
            "  flat bf16 trainable numel 1536 shard 512\n"
            "    param 0 at 0 numel 1400\n"
            "  flat bf16 trainable persistent numel 384 shard 128\n"
            "    param 1 at 0 numel 7\n"
            "  flat bf16 frozen numel 384 shard 128\n"
            "    param 2 at 0 numel 129\n"
            "  flat fp32 trainable persistent numel 384 shard 128\n"
            "    param 3 at 0 numel 1\n"
            "    param 4 at 128 numel 0\n"
            "unit head borrows 0\n");
}

TEST(FlatLayout, EveryElementBelongsToExactlyOneRankAndParameter) {
  for (const int world : {1, 2, 3, 4, 7}) {
    const ModelLayout layout = lay_out(small_model(), {.mesh = world, .persistence_threshold = 0});
    for (const UnitLayout& unit : layout.units) {
      for (const FlatLayout& flat : unit.flats) {
        ASSERT_EQ(flat.numel, flat.shard_numel * world);
        ASSERT_EQ(flat.shard_numel % kAlignNumel, 0);
        std::vector<int> owners(static_cast<size_t>(flat.numel), 0);
        for (int rank = 0; rank < world; ++rank) {
          for (const ParamRun& run : runs_in(flat, rank * flat.shard_numel, (rank + 1) * flat.shard_numel)) {
            for (int64_t i = 0; i < run.numel; ++i) ++owners[static_cast<size_t>(run.flat_offset + i)];
          }
        }
        for (const auto& [offset, numel] : gaps_of(flat)) {
          for (int64_t i = 0; i < numel; ++i) ++owners[static_cast<size_t>(offset + i)];
        }
        for (const int owner_count : owners) ASSERT_EQ(owner_count, 1);
      }
    }
  }
}

TEST(FlatLayout, ParametersBeginAtAlignedElements) {
  const ModelLayout layout = lay_out(small_model(), {.mesh = 2, .persistence_threshold = 50});
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      for (const Piece& piece : flat.pieces) EXPECT_EQ(piece.offset % kAlignNumel, 0);
    }
  }
}

TEST(FlatLayout, RunsGiveTheOffsetWithinTheParameter) {
  FlatLayout flat;
  flat.pieces = {{0, 0, 100}, {1, 128, 200}};
  flat.numel = 512;
  const std::vector<ParamRun> runs = runs_in(flat, 50, 200);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].param_offset, 50);
  EXPECT_EQ(runs[0].numel, 50);
  EXPECT_EQ(runs[1].param_offset, 0);
  EXPECT_EQ(runs[1].flat_offset, 128);
  EXPECT_EQ(runs[1].numel, 72);
}

TEST(FlatLayout, PersistentParametersStopAtTheModelThreshold) {
  const std::vector<UnitSpec> units = {{"u", {{"a", {60}}, {"b", {60}}, {"c", {30}}}, {}}};
  const ModelLayout layout =
      lay_out(units, {.mesh = 1, .persistence_threshold = 100, .model_persistence_threshold = 100});
  ASSERT_EQ(layout.units[0].flats.size(), 2u);
  EXPECT_TRUE(layout.units[0].flats[0].persistent);
  EXPECT_EQ(layout.units[0].flats[0].pieces.size(), 2u);  // a and c: 90 elements
  EXPECT_FALSE(layout.units[0].flats[1].persistent);      // b
}

}  // namespace
}  // namespace shoal
