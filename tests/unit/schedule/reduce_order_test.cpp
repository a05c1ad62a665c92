#include "schedule/reduce_order.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace shoal {
namespace {

using Units = std::vector<int>;

TEST(ReduceOrder, BeginsAsTheReverseOfTheDeclaredUnitsWithGradients) {
  EXPECT_EQ(ReduceOrder({true, false, true}).order(), (Units{2, 0}));
}

TEST(ReduceOrder, EarlyUnitsWaitForThoseBeforeThem) {
  ReduceOrder order({true, true, true});
  for (const int unit : {0, 1, 2}) order.expect(unit);
  EXPECT_EQ(order.ready(1), Units{});
  EXPECT_EQ(order.ready(2), (Units{2, 1}));
  EXPECT_EQ(order.ready(0), (Units{0}));
  EXPECT_EQ(order.finish(), Units{});
}

TEST(ReduceOrder, UnusedUnitsAreReducedInTheirPlace) {
  ReduceOrder order({true, true, true});
  order.expect(0);
  order.expect(2);
  EXPECT_EQ(order.ready(2), (Units{2}));
  EXPECT_EQ(order.ready(0), (Units{1, 0}));
}

TEST(ReduceOrder, UnitsWhoseGradientsNeverComeAreReducedAtTheEnd) {
  ReduceOrder order({true, true});
  order.expect(0);
  order.expect(1);
  EXPECT_EQ(order.ready(0), Units{});
  EXPECT_EQ(order.finish(), (Units{1, 0}));
}

TEST(ReduceOrder, EveryPassReducesEachUnitOnce) {
  ReduceOrder order({true, true, true});
  for (int pass = 0; pass < 3; ++pass) {
    order.expect(1);
    Units all = order.ready(1);
    const Units rest = order.finish();
    all.insert(all.end(), rest.begin(), rest.end());
    EXPECT_EQ(all, (Units{2, 1, 0}));
  }
}

TEST(ReduceOrder, AdoptsTheReadinessOfAPass) {
  ReduceOrder order({true, true, true});
  for (const int unit : {0, 1, 2}) order.expect(unit);
  order.ready(1);
  order.ready(2);
  order.finish();
  EXPECT_EQ(order.readiness(), (Units{1, 2, 0}));
  order.adopt(order.readiness());
  EXPECT_EQ(order.order(), (Units{1, 2, 0}));
  EXPECT_THROW(order.adopt({0, 0, 1}), BrokenPromise);
}

}  // namespace
}  // namespace shoal
