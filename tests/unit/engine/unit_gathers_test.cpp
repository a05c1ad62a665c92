// What a whole model does is in tests/ranks.
#include "engine/unit_gathers.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/comm/rank_threads.h"
#include "unit/shard/model_parts.h"

namespace shoal {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

// Three units of three elements at stage 3, and what happened to them.
struct ThreeUnits {
  explicit ThreeUnits(Group& group)
      : parts({testing::unit_spec(0, {3}), testing::unit_spec(1, {3}), testing::unit_spec(2, {3})}, 3, group),
        weights(parts.weights()),
        gathers(parts.layout, {.stage = 3, .limits = {}, .overlap = true}, weights, group,
                {.needed = [this](int unit) { said += "need " + std::to_string(unit) + "; "; },
                 .released = [this](int unit) { said += "release " + std::to_string(unit) + "; "; },
                 .ranks_differ = [this] { differed = true; },
                 .lost = [this](const std::string& because) { lost += because; }}) {
    for (int unit = 0; unit < 3; ++unit) {
      std::vector<ParamSlot> slots;
      slots.emplace_back(params[static_cast<size_t>(unit)], "p", DType::f32);
      weights.take_params(unit, std::move(slots));
    }
  }

  void use(int unit) {
    gathers.enter({unit});
    gathers.exit({unit});
  }
  void pass(Phase phase, const std::vector<int>& units) {
    gathers.begin(phase);
    for (const int unit : units) use(unit);
    gathers.close_phase();
    gathers.finish();
    gathers.agree_on_order(phase);
  }

  std::vector<at::Tensor> params = {at::empty({3}), at::empty({3}), at::empty({3})};
  testing::ModelParts parts;
  Weights weights;
  std::string said, lost;
  bool differed = false;
  UnitGathers gathers;
};

}  // namespace

TEST(UnitGathers, AUnitIsNeededWhileItIsUsedAndReleasedAfterIt) {
  testing::run_ranks(2, [](Group& group) {
    ThreeUnits model(group);
    model.pass(Phase::evaluate, {0, 2});
    // For the gather, which reads this rank's shard, and for the use.
    EXPECT_EQ(model.said, "need 0; need 0; release 0; need 2; need 2; release 2; ");
    EXPECT_FALSE(model.gathers.is_open());
    EXPECT_FALSE(model.differed);
    EXPECT_EQ(model.lost, "");
  });
}

// As torch's embedding does that has a max_norm.
TEST(UnitGathers, AWeightThatIsWrittenInAPassIsAnError) {
  testing::run_ranks(2, [](Group& group) {
    ThreeUnits model(group);
    model.gathers.begin(Phase::evaluate);
    model.use(0);
    const std::string said = testing::message_of([&] {
      model.gathers.enter({1});
      model.params[1].fill_(1);
      model.gathers.exit({1});
      model.gathers.close_phase();
    });
    EXPECT_THAT(said, AllOf(HasSubstr("[parameter p] was written in place while a pass had it gathered"),
                            HasSubstr("between steps"), HasSubstr("stage 2")));
    EXPECT_THAT(model.lost, HasSubstr("p was written in place during a pass, and the values are lost"));
  });
}

// A rank that leaves a unit out takes part in its gather all the same, in the first pass and in those that follow.
TEST(UnitGathers, ARankTakesPartInWhatOnlyOthersUse) {
  testing::run_ranks(2, [](Group& group) {
    ThreeUnits model(group);
    const std::vector<int> mine = group.rank() == 0 ? std::vector{0, 1, 2} : std::vector{0, 2};
    for (int pass = 0; pass < 2; ++pass) {
      model.said.clear();
      model.pass(Phase::evaluate, mine);
      EXPECT_THAT(model.said, HasSubstr(group.rank() == 0 ? "need 1; need 1; release 1; " : "; need 1; release 1; "));
    }
    EXPECT_TRUE(model.differed);
  });
}

TEST(UnitGathers, OrdersAreAgreedWhenBackwardIsOver) {
  testing::run_ranks(2, [](Group& group) {
    ThreeUnits model(group);
    model.pass(Phase::evaluate, {0, 1});
    EXPECT_FALSE(model.gathers.orders_agreed());
    model.pass(Phase::forward, {0, 1});
    EXPECT_FALSE(model.gathers.orders_agreed());
    model.pass(Phase::backward, {1, 0});
    EXPECT_TRUE(model.gathers.orders_agreed());
  });
}

TEST(UnitGathers, RanksThatUseUnitsInDifferentOrdersAreNamed) {
  testing::run_ranks(2, [](Group& group) {
    ThreeUnits model(group);
    const std::vector<int> mine = group.rank() == 0 ? std::vector{0, 1, 2} : std::vector{1, 0, 2};
    EXPECT_THAT(testing::message_of([&] { model.pass(Phase::evaluate, mine); }),
                AllOf(HasSubstr("[unit u"), HasSubstr("Make every rank use units in the same order")));
  });
}

}  // namespace shoal
