#include "models/value_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_folder.h"

namespace shoal::models {

using ::testing::Each;
using ::testing::ElementsAre;

namespace {

std::vector<float> values_of(const ValueSource& source, int64_t begin, int64_t numel) {
  std::vector<float> values(static_cast<size_t>(numel), -9.0f);
  source.read(begin, numel, values.data());
  return values;
}

}  // namespace

TEST(InitialValues, AConstantIsTheSameEverywhere) {
  EXPECT_THAT(values_of(*make_initial_values(Init::constant(1), 3, "norm"), 17, 5), Each(1.0f));
}

TEST(InitialValues, RandomNumbersDependOnSeedNameAndIndexOnly) {
  const auto values = [](uint64_t seed, const char* name, int64_t begin) {
    return values_of(*make_initial_values(Init::normal(0.02), seed, name), begin, 6);
  };
  EXPECT_EQ(values(1, "w", 5), values(1, "w", 5));
  EXPECT_NE(values(1, "w", 5), values(2, "w", 5));
  EXPECT_NE(values(1, "w", 5), values(1, "v", 5));
  EXPECT_EQ(values(1, "w", 5)[1], values(1, "w", 6)[0]);
}

TEST(InitialValues, UniformNumbersFillTheirBound) {
  const std::vector<float> values = values_of(*make_initial_values(Init::uniform(0.5), 1, "a"), 3, 1000);
  EXPECT_THAT(values, Each(::testing::AllOf(::testing::Ge(-0.5F), ::testing::Le(0.5F))));
  EXPECT_THAT(values, ::testing::Contains(::testing::Gt(0.49F)));
  EXPECT_THAT(values, ::testing::Contains(::testing::Lt(-0.49F)));
}

TEST(InitialValues, TheStandardDeviationScalesTheSameNumbers) {
  const std::vector<float> one = values_of(*make_initial_values(Init::normal(1), 0, "w"), 0, 4);
  const std::vector<float> two = values_of(*make_initial_values(Init::normal(2), 0, "w"), 0, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(2 * one[i], two[i]);
}

TEST(InitialValues, ARangeOfZerosLeavesTheRestAsItWas) {
  const std::vector<float> all = values_of(*make_initial_values(Init::normal(1), 0, "w"), 0, 10);
  const auto partly = make_initial_values(Init::normal(1).with_zeros(3, 4), 0, "w");
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      const std::vector<float> read = values_of(*partly, begin, end - begin);
      for (int64_t i = begin; i < end; ++i) {
        EXPECT_EQ(read[static_cast<size_t>(i - begin)], i >= 3 && i < 7 ? 0.0f : all[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(FileValues, ReadTheNamedTensor) {
  testing::TempFolder folder;
  write_safetensors(folder.path(), {{"a", "", {4}}, {"b", "", {4}}}, {.dtype = DType::f32},
                    [](const std::string& name, int64_t begin, int64_t numel, float* out) {
                      for (int64_t i = 0; i < numel; ++i)
                        out[i] = static_cast<float>(begin + i) + (name == "b" ? 10 : 0);
                    });
  EXPECT_THAT(values_of(*make_file_values(SafetensorsReader::open(folder.path()), "b"), 1, 2), ElementsAre(11, 12));
}

TEST(JoinedValues, AreTheirPartsOneAfterTheOther) {
  const auto constant = [](double value) { return make_initial_values(Init::constant(value), 0, "c"); };
  const auto joined = make_joined_values({{0, 3, constant(1)}, {3, 1, constant(2)}, {4, 4, constant(3)}});
  const std::vector<float> all = {1, 1, 1, 2, 3, 3, 3, 3};
  for (int64_t begin = 0; begin <= 8; ++begin) {
    for (int64_t end = begin; end <= 8; ++end) {
      EXPECT_EQ(values_of(*joined, begin, end - begin), std::vector<float>(all.begin() + begin, all.begin() + end));
    }
  }
}

TEST(JoinedValues, ArePlacesOfTheirOwnInEachPart) {
  const auto random = make_initial_values(Init::normal(1), 7, "w");
  EXPECT_EQ(values_of(*make_joined_values({{0, 4, random}, {4, 4, random}}), 5, 2), values_of(*random, 1, 2));
}

}  // namespace shoal::models
