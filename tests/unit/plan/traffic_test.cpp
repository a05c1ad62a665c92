#include "plan/traffic.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// Three units of 1024 elements, which cut evenly over 2 and 4 ranks.
ModelLayout three_units(int world, DType dtype = DType::f32) {
  std::vector<UnitSpec> units;
  for (const char* name : {"a", "b", "c"}) {
    UnitSpec unit;
    unit.name = name;
    unit.params.push_back({.name = std::string(name) + ".w", .shape = {32, 32}, .dtype = dtype});
    units.push_back(unit);
  }
  return lay_out(units, {.mesh = world, .persistence_threshold = 0});
}

StepTraffic traffic_of(const ModelLayout& layout, int stage, int64_t accumulation = 1, bool reproducible = false) {
  return plan_traffic(layout, {.stage = stage, .accumulation_steps = accumulation, .reproducible = reproducible},
                      {.prefetch_numel = 2000});
}

TEST(PlanTraffic, IsThatOfThePaper) {
  constexpr uint64_t kModel = 3 * 1024 * 4;
  for (const uint64_t world : {1, 2, 4}) {
    const uint64_t pass = kModel / world * (world - 1);
    const ModelLayout layout = three_units(static_cast<int>(world));
    EXPECT_EQ(traffic_of(layout, 0).total(), 2 * pass);
    EXPECT_EQ(traffic_of(layout, 1).total(), 2 * pass);
    EXPECT_EQ(traffic_of(layout, 2).total(), 2 * pass);
    EXPECT_EQ(traffic_of(layout, 3).total(), 3 * pass);
    EXPECT_EQ(traffic_of(layout, 3).gathered, 2 * pass);
    EXPECT_EQ(traffic_of(layout, 2).published, pass);
  }
}

TEST(PlanTraffic, AccumulationGathersEachMicroStepAndReducesByTheStageTable) {
  constexpr uint64_t kPass = 3 * 1024 * 4 / 2;
  const ModelLayout layout = three_units(2);
  EXPECT_EQ(traffic_of(layout, 3, 4).gathered, 4 * 2 * kPass);
  EXPECT_EQ(traffic_of(layout, 3, 4).reduced, 4 * kPass);
  EXPECT_EQ(traffic_of(layout, 1, 4).reduced, kPass) << "stages 0 and 1 accumulate first";
  EXPECT_EQ(traffic_of(layout, 1, 4, true).reduced, 4 * kPass);
}

TEST(PlanTraffic, CountsTheDtypeThatTravels) {
  const ModelLayout layout = three_units(2, DType::bf16);
  EXPECT_EQ(traffic_of(layout, 3).total(), 3u * 3 * 1024 * 2 / 2);
  EXPECT_EQ(traffic_of(layout, 1, 2).reduced, 3u * 1024 * 4 / 2) << "accumulated in fp32, and sent so";
}

TEST(PlanTraffic, SumsOfSquaresGoToEveryOtherRank) {
  // 8 runs a unit: half of them is one node; a third, of 9 with the padding, is two.
  EXPECT_EQ(traffic_of(three_units(1), 3).norm, 0u);
  EXPECT_EQ(traffic_of(three_units(2), 3).norm, 3u * 1 * 8);
  EXPECT_EQ(traffic_of(three_units(3), 3).norm, 2u * 3 * 2 * 8);
}

}  // namespace
}  // namespace shoal
