#include "models/parameter_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::TempFolder;

namespace {

const FileNames kNames = {.base_prefix = "model.", .ignored_suffixes = {".inv_freq"}};

WeightsOrigin file_with(const TempFolder& folder, const std::vector<SafeTensor>& tensors) {
  write_safetensors(folder.path(), tensors, {.dtype = DType::f32},
                    [](const std::string&, int64_t, int64_t numel, float* out) { std::fill_n(out, numel, 4.0f); });
  return {.file = SafetensorsReader::open(folder.path()), .path = "some/folder"};
}

// Two units: model.a [2, 3]; model.b [3] and head, which is model.a again.
std::vector<Unit> declare(ParameterList& list) {
  list.begin_unit("first");
  const at::Tensor a = list.add("model.a", {2, 3}, Init::normal(0.02));
  list.begin_unit("second");
  list.add("model.b", {3}, Init::constant(1));
  list.add_tied("head", a);
  return list.finish();
}

std::string problem_with(const std::vector<SafeTensor>& tensors) {
  TempFolder folder;
  ParameterList list(file_with(folder, tensors), kNames);
  return message_of([&] { declare(list); });
}

float first_value(const Parameter& param) {
  float value = 0;
  param.source->read(0, 1, &value);
  return value;
}

}  // namespace

TEST(ParameterList, MakesUnitsOfParametersWithoutMemory) {
  ParameterList list({.seed = 5}, kNames);
  const std::vector<Unit> units = declare(list);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[1].name, "second");
  const Parameter& a = units[0].params.at(0);
  EXPECT_EQ(a.name, "model.a");
  EXPECT_EQ(a.tensor.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(a.tensor.requires_grad());
  EXPECT_THAT(message_of([&] { a.tensor.sum(); }), HasSubstr("placeholder"));
  EXPECT_EQ(first_value(units[1].params.at(0)), 1.0f);
}

TEST(ParameterList, ATiedNameIsTheSameTensorAndCountsOnce) {
  ParameterList list({}, kNames);
  const std::vector<Unit> units = declare(list);
  EXPECT_TRUE(units[1].params.at(1).tensor.is_same(units[0].params.at(0).tensor));
  EXPECT_EQ(units[1].params.at(1).name, "head");
  EXPECT_EQ(list.numel(), 9);
}

TEST(ParameterList, AFileGivesTheValues) {
  TempFolder folder;
  ParameterList list(file_with(folder, {{"model.a", "", {2, 3}}, {"model.b", "", {3}}}), kNames);
  const std::vector<Unit> units = declare(list);
  EXPECT_EQ(first_value(units[0].params.at(0)), 4.0f);
  EXPECT_EQ(first_value(units[1].params.at(0)), 4.0f);
}

TEST(ParameterList, TheBasePrefixMayBeMissingAndTiedAndIgnoredNamesMayBeThere) {
  EXPECT_EQ(problem_with({{"a", "", {2, 3}}, {"model.b", "", {3}}}), "");
  EXPECT_EQ(
      problem_with({{"model.a", "", {2, 3}}, {"model.b", "", {3}}, {"head", "", {2, 3}}, {"x.inv_freq", "", {1}}}), "");
}

TEST(ParameterList, NamesAllThatIsMissingTooMuchOrOfAnotherShape) {
  EXPECT_THAT(problem_with({{"c", "", {1}}, {"d", "", {1}}}),
              AllOf(HasSubstr("[model some/folder]"), HasSubstr("Missing: model.a, model.b."),
                    HasSubstr("Not expected: c, d."), Not(HasSubstr("head"))));
  EXPECT_THAT(
      problem_with({{"model.a", "", {3, 2}}, {"b", "", {3, 1}}}),
      AllOf(HasSubstr("model.a is [3, 2], and config.json asks for [2, 3]; b is [3, 1]"), Not(HasSubstr("Missing"))));
}

namespace {

// model.e [2, 3], in files also as model.e.0 [3] and model.e.1 [3].
Unit declare_pieced(ParameterList& list, bool asks = true) {
  list.begin_unit("unit");
  list.add_pieced("model.e", {2, 3}, Init::constant(1), [&]() -> std::vector<StoredPiece> {
    EXPECT_TRUE(asks);
    return {{"model.e.0", {3}, 0}, {"model.e.1", {3}, 3}};
  });
  return list.finish().at(0);
}

std::string pieced_problem(const std::vector<SafeTensor>& tensors) {
  TempFolder folder;
  ParameterList list(file_with(folder, tensors), kNames);
  return message_of([&] { declare_pieced(list); });
}

}  // namespace

TEST(ParameterList, AFileMayHaveAParameterInPieces) {
  TempFolder pieces, whole;
  ParameterList of_pieces(file_with(pieces, {{"model.e.0", "", {3}}, {"e.1", "", {3}}}), kNames);
  EXPECT_EQ(first_value(declare_pieced(of_pieces).params.at(0)), 4.0f);
  ParameterList of_whole(file_with(whole, {{"model.e", "", {2, 3}}}), kNames);
  EXPECT_EQ(first_value(declare_pieced(of_whole, /*asks=*/false).params.at(0)), 4.0f);
  ParameterList of_none({.seed = 5}, kNames);
  EXPECT_EQ(first_value(declare_pieced(of_none, /*asks=*/false).params.at(0)), 1.0f);
  EXPECT_EQ(of_pieces.numel(), 6);
}

TEST(ParameterList, NamesPiecesThatAreMissingTooMuchOrOfAnotherShape) {
  EXPECT_THAT(pieced_problem({{"model.e.0", "", {3}}}), HasSubstr("Missing: model.e.1."));
  EXPECT_THAT(pieced_problem({{"x", "", {3}}}), HasSubstr("Missing: model.e.0 and 1 more of its kind."));
  EXPECT_THAT(pieced_problem({{"model.e.0", "", {4}}, {"model.e.1", "", {3}}}),
              HasSubstr("model.e.0 is [4], and config.json asks for [3]"));
  EXPECT_THAT(pieced_problem({{"model.e", "", {2, 3}}, {"model.e.0", "", {3}}}), HasSubstr("Not expected: model.e.0."));
}

}  // namespace shoal::models
