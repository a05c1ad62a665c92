#include "plan/host_flats.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

ModelLayout two_units() {
  return lay_out({{.name = "u0", .params = {{"p", {1024}, DType::bf16, true, 0}}, .borrows = {}},
                  {.name = "u1",
                   .params = {{"p", {1024}, DType::bf16, true, 0}, {"frozen", {64}, DType::bf16, false, 0}},
                   .borrows = {}}},
                 {.mesh = 1, .persistence_threshold = 0});
}

HostFlats flats(Tier tier, double ratio, double disk_ratio, bool streams) {
  const ModelLayout layout = two_units();
  return updated_by_host_alone(
      layout, cut_states(layout, {.tier = tier, .ratio = ratio, .disk_ratio = disk_ratio, .chunk_numel = 128}),
      streams);
}

TEST(HostFlats, AreThoseOfWhichNoStateIsUpdatedByTheGpu) {
  const HostFlats none = {{false}, {false, false}}, last = {{false}, {true, false}}, both = {{true}, {true, false}};
  EXPECT_EQ(flats(Tier::device, 1, 1, false), none);
  EXPECT_EQ(flats(Tier::host, 1, 1, false), both) << "but for what is frozen";
  EXPECT_EQ(flats(Tier::host, 1, 1, true), none) << "the GPU updates them";
  EXPECT_EQ(flats(Tier::host, 0.5, 1, false), last) << "the front is on the GPU";
  EXPECT_EQ(flats(Tier::host, 0.7, 1, false), last) << "a part of the first is";
  EXPECT_EQ(flats(Tier::host, 0.3, 1, false), none) << "a part of each is";
  EXPECT_EQ(flats(Tier::disk, 1, 1, true), both);
  EXPECT_EQ(flats(Tier::disk, 1, 0.5, true), last) << "the rest comes to the GPU";
}

TEST(HostFlats, AreNoneWhereThereAreNoFlats) {
  EXPECT_FALSE(contains({}, 3, 1));
  EXPECT_TRUE(contains({{false, true}}, 0, 1));
}

}  // namespace
}  // namespace shoal
