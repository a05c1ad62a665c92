#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "checkpoint/safetensors.h"
#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::names_of;
using testing::put_file;
using testing::TempFolder;

namespace {

const std::vector<SafeTensor> kTensors = {{"b", "", {3, 5}}, {"a", "", {7}}, {"none", "", {0}}, {"c", "", {2, 2, 2}}};

// Integers that every dtype holds exactly; another for each tensor.
void fill(const std::string& name, int64_t begin, int64_t numel, float* out) {
  for (int64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(name[0] + begin + i);
}

void expect_all(const SafetensorsReader& reader) {
  ASSERT_EQ(reader.tensors().size(), kTensors.size());
  for (const SafeTensor& tensor : kTensors) {
    int64_t numel = 1;
    for (const int64_t length : tensor.shape) numel *= length;
    std::vector<float> values(static_cast<size_t>(numel)), wanted(static_cast<size_t>(numel));
    reader.read(tensor.name, 0, numel, values.data());
    fill(tensor.name, 0, numel, wanted.data());
    EXPECT_EQ(values, wanted) << tensor.name;
  }
}

}  // namespace

TEST(WriteSafetensors, WhatIsWrittenReadsBackInEachDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TempFolder folder;
    write_safetensors(folder / "new/deep", kTensors, {.dtype = dtype}, fill);
    EXPECT_THAT(names_of(folder / "new/deep"), ElementsAre("model.safetensors"));
    expect_all(*SafetensorsReader::open(folder / "new/deep"));
  }
}

TEST(WriteSafetensors, ANewFileBeginsBeforeOneWouldBeTooLarge) {
  TempFolder folder;
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32, .max_shard_nbytes = 60}, fill);
  EXPECT_THAT(names_of(folder.path()), ElementsAre("model-00001-of-00002.safetensors",
                                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(SafetensorsReader::open(folder / "model-00001-of-00002.safetensors")->tensors().size(), 1u);
  expect_all(*SafetensorsReader::open(folder.path()));
}

TEST(WriteSafetensors, ATensorLargerThanAFileGetsItsOwn) {
  TempFolder folder;
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32, .max_shard_nbytes = 1}, fill);
  EXPECT_EQ(names_of(folder.path()).size(), 4u);  // b; a; none, which is empty, and c; the index
  expect_all(*SafetensorsReader::open(folder.path()));
}

TEST(WriteSafetensors, ALongTensorIsAskedForInPieces) {
  TempFolder folder;
  int64_t next = 0, calls = 0;
  const int64_t numel = (int64_t{5} << 19) + 3;
  write_safetensors(folder.path(), {{"w", "", {numel}}}, {.dtype = DType::bf16},
                    [&](const std::string&, int64_t begin, int64_t count, float* out) {
                      EXPECT_EQ(begin, next);
                      next += count;
                      ++calls;
                      std::fill_n(out, count, static_cast<float>(calls));
                    });
  EXPECT_EQ(next, numel);
  EXPECT_GT(calls, 1);
  float last = 0;
  SafetensorsReader::open(folder.path())->read("w", numel - 1, 1, &last);
  EXPECT_EQ(last, static_cast<float>(calls));
}

TEST(WriteSafetensors, Bf16RoundsAsTheMastersOfABf16Run) {
  TempFolder folder;
  // A tie between two neighbours goes away from zero.
  write_safetensors(folder.path(), {{"w", "", {2}}}, {.dtype = DType::bf16},
                    [](const std::string&, int64_t, int64_t, float* out) {
                      out[0] = 1.0f + 0x1p-8f;
                      out[1] = -1.0f - 0x1p-8f;
                    });
  std::vector<float> values(2);
  SafetensorsReader::open(folder.path())->read("w", 0, 2, values.data());
  EXPECT_THAT(values, ElementsAre(1.0f + 0x1p-7f, -1.0f - 0x1p-7f));
}

TEST(WriteSafetensors, AnEarlierExportIsReplacedWhole) {
  TempFolder folder;
  put_file(folder / "config.json", "{}");
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32, .max_shard_nbytes = 60}, fill);
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32}, fill);
  EXPECT_THAT(names_of(folder.path()), ElementsAre("config.json", "model.safetensors"));
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32, .max_shard_nbytes = 60}, fill);
  EXPECT_EQ(names_of(folder.path()).size(), 4u);
  expect_all(*SafetensorsReader::open(folder.path()));
}

TEST(WriteSafetensors, AFailureLeavesTheEarlierExportAndNothingElse) {
  TempFolder folder;
  write_safetensors(folder.path(), kTensors, {.dtype = DType::f32}, fill);
  const auto fails = [](const std::string& name, int64_t begin, int64_t numel, float* out) {
    if (name == "c") throw std::runtime_error("no more values");
    std::fill_n(out, numel, static_cast<float>(begin));
  };
  EXPECT_EQ(message_of([&] {
              write_safetensors(folder.path(), kTensors, {.dtype = DType::f32, .max_shard_nbytes = 60}, fails);
            }),
            "no more values");
  EXPECT_THAT(names_of(folder.path()), ElementsAre("model.safetensors"));
  expect_all(*SafetensorsReader::open(folder.path()));
}

TEST(WriteSafetensors, AFolderThatCannotBeMadeIsNamed) {
  TempFolder folder;
  put_file(folder / "file", "");
  EXPECT_THAT(message_of([&] { write_safetensors(folder / "file/x", kTensors, {}, fill); }), HasSubstr("file"));
}

}  // namespace shoal
