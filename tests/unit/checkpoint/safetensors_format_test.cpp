#include "checkpoint/safetensors_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "training/outcome.h"

namespace shoal {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_nbytes) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_nbytes, 'x');
}

std::string problem_of(const std::string& file) {
  return message_of([&] { parse_safetensors_header("m.safetensors", file.data(), file.size()); });
}

constexpr const char* kTwo =
    R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},)"
    R"( "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}})";

}  // namespace

TEST(SafetensorsHeader, EntriesComeInTheOrderOfTheirBytes) {
  const std::string file = file_of(kTwo, 28);
  const std::vector<SafetensorsEntry> entries = parse_safetensors_header("m", file.data(), file.size());
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].tensor.name, "a");
  EXPECT_EQ(entries[0].tensor.dtype, "BF16");
  EXPECT_EQ(entries[1].tensor.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(entries[1].begin, file.size() - 24);
  EXPECT_EQ(entries[1].end, file.size());
}

TEST(SafetensorsHeader, ATruncatedFileIsNamedWithTheTensorThatIsCut) {
  const std::string file = file_of(kTwo, 28);
  EXPECT_THAT(problem_of(file.substr(0, file.size() - 1)),
              AllOf(HasSubstr("m.safetensors"), HasSubstr("truncated"), HasSubstr("b ends")));
  EXPECT_THAT(problem_of(file.substr(0, 20)), HasSubstr("truncated"));
  EXPECT_THAT(problem_of("abc"), HasSubstr("truncated"));
  EXPECT_THAT(problem_of(""), HasSubstr("truncated"));
}

TEST(SafetensorsHeader, BytesBehindTheLastTensorAreRefused) {
  EXPECT_THAT(problem_of(file_of(kTwo, 29)), HasSubstr("end at byte"));
}

TEST(SafetensorsHeader, OverlapsAndGapsAreRefused) {
  const auto two = [](const std::string& second) {
    return R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], )"
           R"("data_offsets": )" +
           second + "}}";
  };
  EXPECT_EQ(problem_of(file_of(two("[4, 8]"), 8)), "");
  EXPECT_THAT(problem_of(file_of(two("[3, 7]"), 7)), AllOf(HasSubstr("b"), HasSubstr("overlaps")));
  EXPECT_THAT(problem_of(file_of(two("[5, 9]"), 9)), AllOf(HasSubstr("b"), HasSubstr("gap")));
}

TEST(SafetensorsHeader, EntriesThatAreNotWellFormedAreNamed) {
  const auto one = [](const std::string& entry) { return file_of("{\"odd\": " + entry + "}", 8); };
  EXPECT_EQ(problem_of(one(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})")), "");
  for (const char* entry : {
           "3",
           R"({"shape": [2], "data_offsets": [0, 8]})",
           R"({"dtype": "F31", "shape": [2], "data_offsets": [0, 8]})",
           R"({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]})",
           R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})",
           R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]})",
           R"({"dtype": "F32", "shape": [2], "data_offsets": [0]})",
           R"({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})",
           R"({"dtype": "F32", "shape": [65536, 65536, 65536, 65536], "data_offsets": [0, 8]})",
       }) {
    EXPECT_THAT(problem_of(one(entry)), HasSubstr("odd")) << entry;
  }
  EXPECT_THAT(problem_of(file_of("[1]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem_of(file_of("{\"a\": ", 0)), HasSubstr("m.safetensors header"));
}

TEST(SafetensorsHeader, WhatIsMadeReadsBack) {
  const std::vector<SafeTensor> tensors = {
      {"w", "", {3, 5}}, {"scalar", "", {}}, {"empty", "", {0, 4}}, {"quo\"te", "", {1}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string header = make_safetensors_header(tensors, dtype);
    EXPECT_EQ(header.size() % 8, 0u);
    const std::string file = header + std::string((15 + 1 + 0 + 1) * nbytes_of(dtype), '\0');
    const std::vector<SafetensorsEntry> entries = parse_safetensors_header("m", file.data(), file.size());
    ASSERT_EQ(entries.size(), 4u);
    EXPECT_EQ(entries[0].tensor.name, "w");
    EXPECT_EQ(entries[0].tensor.dtype, safetensors_dtype(dtype));
    EXPECT_EQ(entries[3].tensor.name, "quo\"te");
    EXPECT_EQ(entries[3].end, file.size());
  }
}

}  // namespace shoal
