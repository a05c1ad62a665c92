#include "layout/param_tops.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

UnitLayout unit_on(const Mesh& mesh) {
  UnitSpec unit;
  unit.name = "u";
  unit.params.push_back({.name = "big", .shape = {9'001}});
  unit.params.push_back({.name = "frozen", .shape = {300}, .trainable = false});
  unit.params.push_back({.name = "small", .shape = {3}});
  unit.params.push_back({.name = "empty", .shape = {0}});
  unit.params.push_back({.name = "other", .shape = {2'000}});
  return lay_out({unit}, {.mesh = mesh, .persistence_threshold = 10}).units[0];
}

TEST(ParamTops, PartsAreTheWholeParameterInOrderAtEveryStageAndWorld) {
  for (const int world : {1, 2, 3, 4, 8}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const UnitLayout unit = unit_on(world);
      const UnitTops tops = param_tops(unit, stage, world);
      ASSERT_EQ(tops.params.size(), 4u) << "all but the frozen one";
      int64_t places = 0;
      for (const ParamTops& param : tops.params) {
        int64_t run = 0;
        EXPECT_EQ(param.offset, places);
        for (const ParamPart& part : param.parts) {
          EXPECT_EQ(part.begin, run);
          EXPECT_GT(part.end, part.begin);
          EXPECT_LE(top_count(part.begin, part.end), param.places);
          run = part.end;
          const Cut states = Cuts(world, part.rank, stage).states(unit.flats[static_cast<size_t>(param.flat)]);
          for (const Piece& piece : unit.flats[static_cast<size_t>(param.flat)].pieces) {
            if (piece.param != param.param) continue;
            EXPECT_GE(piece.offset + part.begin * kRunNumel, states.begin);
            EXPECT_LE(piece.offset + part.end * kRunNumel, states.end);
          }
        }
        EXPECT_EQ(run, runs_of(param.numel));
        if (stage == 0) {
          EXPECT_LE(param.parts.size(), 1u) << "every rank has all of it";
        }
        places += 2 * param.places;
      }
      EXPECT_EQ(tops.places, places);
    }
  }
}

TEST(ParamTops, OfReplicasTheFirstOneCounts) {
  const Mesh mesh({{.name = std::string(kReplica), .size = 2}, {.name = std::string(kShard), .size = 3}});
  const Stage stage(3, {Over::shard, Over::shard, Over::shard});
  for (const ParamTops& param : param_tops(unit_on(mesh), stage, mesh).params) {
    for (const ParamPart& part : param.parts) EXPECT_LT(part.rank, 3);
  }
}

}  // namespace
}  // namespace shoal
