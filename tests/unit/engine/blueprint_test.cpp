#include "engine/blueprint.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/comm/rank_threads.h"
#include "unit/shard/model_parts.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;

namespace {

at::Tensor leaf(int64_t numel = 2, at::ScalarType type = at::kFloat) {
  return at::ones({numel}, type).set_requires_grad(true);
}

std::string refusal_of(const std::vector<Unit>& units, size_t groups = 1) {
  return message_of([&] { make_blueprint(units, {}, groups); });
}

}  // namespace

TEST(Blueprint, TakesNamesShapesGroupsAndWhatIsTrained) {
  const at::Tensor frozen = at::ones({3, 0});
  const Blueprint blueprint = make_blueprint({{"u", {{"w", leaf(), 1}, {"f", frozen}}}}, {}, 2);
  ASSERT_EQ(blueprint.specs.size(), 1u);
  const std::vector<ParamSpec>& params = blueprint.specs[0].params;
  EXPECT_EQ(params[0].name, "w");
  EXPECT_EQ(params[0].group, 1);
  EXPECT_TRUE(params[0].trainable);
  EXPECT_EQ(params[1].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_FALSE(params[1].trainable);
}

TEST(Blueprint, ATiedTensorBelongsToTheFirstUnitAndIsBorrowedByTheOthers) {
  const at::Tensor tied = leaf();
  const Blueprint blueprint = make_blueprint(
      {{"a", {{"a.x", leaf()}, {"a.tied", tied}}}, {"b", {{"b.tied", tied}, {"b.too", tied}}}, {"c", {}}}, {}, 1);
  EXPECT_EQ(blueprint.specs[0].params.size(), 2u);
  EXPECT_TRUE(blueprint.specs[1].params.empty());
  EXPECT_EQ(blueprint.specs[1].borrows, std::vector<int>{0});
  EXPECT_TRUE(blueprint.specs[2].borrows.empty());
  for (const char* name : {"a.tied", "b.tied", "b.too"}) {
    EXPECT_EQ(blueprint.by_name.at(name).unit, 0) << name;
    EXPECT_EQ(blueprint.by_name.at(name).param, 1) << name;
  }
}

TEST(Blueprint, TheConfigsPrecisionDecidesTheDtypeUnlessAParameterKeepsItsOwn) {
  const std::vector<Unit> units = {
      {"u", {{"w", leaf()}, {"kept", leaf(), 0, true}, {"half", leaf(2, at::kHalf), 0, true}}}};
  Config config;
  const auto dtypes = [&] {
    std::vector<DType> found;
    const Blueprint blueprint = make_blueprint(units, config, 1);
    for (const ParamSpec& param : blueprint.specs[0].params) found.push_back(param.dtype);
    return found;
  };
  EXPECT_EQ(dtypes(), (std::vector{DType::f32, DType::f32, DType::f16}));
  config.precision = Precision::bf16;
  EXPECT_EQ(dtypes(), (std::vector{DType::bf16, DType::f32, DType::f16}));
  config.precision = Precision::fp16;
  EXPECT_EQ(dtypes(), (std::vector{DType::f16, DType::f32, DType::f16}));
}

TEST(Blueprint, RefusesWhatItCannotTrainAndSaysWhichParameter) {
  EXPECT_THAT(refusal_of({}), HasSubstr("[engine] the model has no units"));
  EXPECT_THAT(refusal_of({{"u", {}}, {"u", {}}}), HasSubstr("[unit u] is declared twice"));
  EXPECT_THAT(refusal_of({{"u", {{"w", leaf()}, {"w", leaf()}}}}), HasSubstr("[parameter w] is declared twice"));
  EXPECT_THAT(refusal_of({{"u", {{"w", at::Tensor()}}}}), HasSubstr("[parameter w] is not a tensor"));
  EXPECT_THAT(refusal_of({{"u", {{"w", leaf().add(1)}}}}), HasSubstr("[parameter w] is not a leaf"));
  EXPECT_THAT(refusal_of({{"u", {{"w", leaf(2, at::kDouble)}}}}), HasSubstr("[parameter w] has dtype Double"));
  EXPECT_THAT(refusal_of({{"u", {{"w", at::ones({2}, at::device(at::kMeta))}}}}),
              HasSubstr("[parameter w] is on meta"));
  EXPECT_THAT(refusal_of({{"u", {{"w", leaf(), 2}}}}, 2), HasSubstr("names parameter group 2, but there are 2"));
  EXPECT_THAT(refusal_of({{"u", {{"w", leaf(), -1}}}}), HasSubstr("names parameter group -1"));
}

TEST(Blueprint, RefusesTwoTensorsOverOneMemory) {
  const at::Tensor base = leaf(6);
  EXPECT_THAT(refusal_of({{"u", {{"w", base}, {"view", base.detach()}}}}),
              HasSubstr("[parameter view] shares its memory with w"));
  EXPECT_THAT(refusal_of({{"u", {{"w", base}, {"tail", base.detach().slice(0, 5, 6)}}}}),
              HasSubstr("[parameter tail] shares its memory with w"));
  EXPECT_THAT(refusal_of({{"u", {{"tail", base.detach().slice(0, 4, 6)}, {"head", base.detach().slice(0, 0, 5)}}}}),
              HasSubstr("[parameter head] shares its memory with tail"));
}

// As a flattened RNN has them.
TEST(Blueprint, TakesViewsOfOneMemoryThatLieSideBySide) {
  const at::Tensor base = leaf(6).detach();
  const std::vector<Unit> units = {
      {"u", {{"b", base.slice(0, 4, 6)}, {"a", base.slice(0, 0, 4).view({2, 2}).t()}, {"none", base.slice(0, 6, 6)}}}};
  EXPECT_EQ(make_blueprint(units, {}, 1).tensors[0].size(), 3u);
}

TEST(Blueprint, EveryRankIsToldWhichRankDiffersInWhat) {
  const auto outcomes = [](int odd_model, int odd_config, int odd_groups) {
    return testing::outcomes_of(make_thread_groups(4), [&](std::unique_ptr<Group>& group) {
      const int rank = group->rank();
      Config config;
      config.optimizer.lr = rank == odd_config ? 0.5 : 0.25;
      config.zero.offload_optimizer.nvme_path = std::to_string(rank);  // may differ
      config.zero.offload_param.nvme_path = std::to_string(rank);
      const std::vector<ParamGroup> groups = {{}, {.lr = 0.1, .weight_decay = rank == odd_groups ? 0.0 : 0.01}};
      check_agreement(make_blueprint({{"u", {{"w", leaf(rank == odd_model ? 3 : 2)}}}}, config, 2), config, groups,
                      *group);
    });
  };
  EXPECT_EQ(outcomes(-1, -1, -1), std::vector<std::string>(4));
  for (const std::string& outcome : outcomes(2, -1, -1)) {
    EXPECT_THAT(outcome, HasSubstr("[engine] the ranks disagree: rank 2 has another model than rank 0."));
  }
  for (const std::string& outcome : outcomes(2, 3, 3)) {
    EXPECT_THAT(outcome,
                HasSubstr("rank 2 has another model than rank 0; rank 3 has another config than rank 0; rank 3 has "
                          "other parameter groups than rank 0."));
  }
}

}  // namespace shoal
