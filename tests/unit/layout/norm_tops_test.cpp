#include "layout/norm_tops.h"

#include <gtest/gtest.h>

#include "layout/cut.h"

namespace shoal {
namespace {

ModelLayout layout_on(const Mesh& mesh) {
  UnitSpec unit;
  unit.name = "u";
  unit.params.push_back({.name = "big", .shape = {300, 128}});
  unit.params.push_back({.name = "frozen", .shape = {300, 128}, .trainable = false});
  unit.params.push_back({.name = "small", .shape = {128}});
  return lay_out({unit, unit}, {.mesh = mesh, .persistence_threshold = 1000});
}

TEST(NormTops, EveryRankHasTheSamePlacesAndRoomForItsTops) {
  for (const int world : {1, 2, 3, 4, 6, 8}) {
    const ModelLayout layout = layout_on(world);
    const NormTops tops = norm_tops(layout);
    ASSERT_EQ(tops.flats.size(), 4u) << "of two units a large and a small flat that are trained";
    size_t number = 0;
    int64_t places = 0;
    for (const UnitLayout& unit : layout.units) {
      for (const FlatLayout& flat : unit.flats) {
        if (!flat.trainable) continue;
        const FlatTops& of_flat = tops.flats[number++];
        EXPECT_EQ(of_flat.offset, places);
        EXPECT_EQ(of_flat.part_runs * kRunNumel * world, flat.numel);
        int64_t most = 0;
        for (int rank = 0; rank < world; ++rank) {
          const Cut own = cut(flat, Over::world, layout.mesh, rank);
          most = std::max(most, top_count(own.begin / kRunNumel, own.end / kRunNumel));
        }
        EXPECT_EQ(of_flat.places, most);
        places += most;
      }
    }
    EXPECT_EQ(tops.places, places);
  }
}

TEST(NormTops, PartsAreInTheOrderOfTheFlatOnAnyMesh) {
  const Mesh mesh({{.name = std::string(kReplica), .size = 2}, {.name = std::string(kShard), .size = 3}});
  const ModelLayout layout = layout_on(mesh);
  const NormTops tops = norm_tops(layout);
  ASSERT_EQ(tops.rank_of_part.size(), 6u);
  int64_t at = 0;
  for (const int rank : tops.rank_of_part) {
    const Cut own = Cuts(mesh, rank, 3).own(layout.units[0].flats[0]);
    EXPECT_EQ(own.begin, at);
    at = own.end;
  }
  EXPECT_EQ(at, layout.units[0].flats[0].numel);
}

}  // namespace
}  // namespace shoal
