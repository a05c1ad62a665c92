#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put_file;
using testing::TempFolder;

namespace {

template <typename T>
std::string bytes(std::initializer_list<T> values) {
  std::string text(values.size() * sizeof(T), '\0');
  std::memcpy(text.data(), values.begin(), text.size());
  return text;
}

std::string file_of(const std::string& header, const std::string& data) {
  return bytes<uint64_t>({header.size()}) + header + data;
}

// One tensor of one dtype.
std::string one_tensor(const std::string& name, const std::string& dtype, size_t numel, const std::string& data) {
  return file_of("{\"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": [" + std::to_string(numel) +
                     "], \"data_offsets\": [0, " + std::to_string(data.size()) + "]}}",
                 data);
}

std::vector<float> values_of(const SafetensorsReader& reader, const std::string& name, int64_t begin, int64_t numel) {
  std::vector<float> values(static_cast<size_t>(numel));
  reader.read(name, begin, numel, values.data());
  return values;
}

std::string open_problem(const std::string& path) {
  return message_of([&] { SafetensorsReader::open(path); });
}

}  // namespace

TEST(SafetensorsReader, ReadsRangesOfEachFloatingDtype) {
  TempFolder folder;
  put_file(folder / "f32.safetensors", one_tensor("w", "F32", 3, bytes<float>({1.5f, -2.0f, 3.0f})));
  put_file(folder / "f64.safetensors", one_tensor("w", "F64", 3, bytes<double>({1.5, -2.0, 3.0})));
  put_file(folder / "bf16.safetensors", one_tensor("w", "BF16", 3, bytes<uint16_t>({0x3fc0, 0xc000, 0x4040})));
  put_file(folder / "f16.safetensors", one_tensor("w", "F16", 3, bytes<uint16_t>({0x3e00, 0xc000, 0x4200})));
  for (const char* file : {"f32.safetensors", "f64.safetensors", "bf16.safetensors", "f16.safetensors"}) {
    const auto reader = SafetensorsReader::open(folder / file);
    EXPECT_THAT(values_of(*reader, "w", 0, 3), ElementsAre(1.5f, -2.0f, 3.0f)) << file;
    EXPECT_THAT(values_of(*reader, "w", 1, 1), ElementsAre(-2.0f)) << file;
    EXPECT_THAT(values_of(*reader, "w", 3, 0), ElementsAre()) << file;
  }
}

TEST(SafetensorsReader, ReadsLongTensorsAtOddAddresses) {
  TempFolder folder;
  std::string data;
  for (int i = 0; i < 10'000; ++i) data += bytes<uint16_t>({static_cast<uint16_t>(0x3f80 + i % 100)});
  // The byte before moves what follows to an odd address.
  put_file(folder / "m.safetensors", file_of(R"({"b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, )"
                                             R"("w": {"dtype": "BF16", "shape": [10000], "data_offsets": [1, 20001]}})",
                                             "x" + data));
  const auto reader = SafetensorsReader::open(folder / "m.safetensors");
  const std::vector<float> values = values_of(*reader, "w", 1, 9'999);
  for (int i = 1; i < 10'000; ++i)
    ASSERT_EQ(values[static_cast<size_t>(i - 1)], 1.0f + static_cast<float>(i % 100) / 128);
}

TEST(SafetensorsReader, AFileLargerThanMemoryIsReadWhereItIsAsked) {
  TempFolder folder;
  const std::string path = folder / "m.safetensors";
  const uint64_t numel = uint64_t{1} << 35;  // 64 GiB of a file that holds nothing but holes
  put_file(path, file_of("{\"w\": {\"dtype\": \"BF16\", \"shape\": [" + std::to_string(numel) +
                             "], \"data_offsets\": [0, " + std::to_string(2 * numel) + "]}}",
                         bytes<uint16_t>({0x3f80})));
  std::error_code problem;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2 + 2 * numel, problem);
  if (problem) GTEST_SKIP() << "no file of 64 GiB can be made here: " << problem.message();
  const auto reader = SafetensorsReader::open(path);
  EXPECT_THAT(values_of(*reader, "w", 0, 2), ElementsAre(1.0f, 0.0f));
  EXPECT_THAT(values_of(*reader, "w", static_cast<int64_t>(numel) - 1, 1), ElementsAre(0.0f));
}

TEST(SafetensorsReader, FindsTheFileInAFolder) {
  TempFolder folder;
  EXPECT_THAT(open_problem(folder.path()), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  put_file(folder / "model.safetensors", one_tensor("w", "F32", 1, bytes<float>({2.0f})));
  const auto reader = SafetensorsReader::open(folder.path());
  ASSERT_EQ(reader->tensors().size(), 1u);
  EXPECT_EQ(reader->tensors()[0].shape, std::vector<int64_t>{1});
  EXPECT_TRUE(reader->contains("w"));
  EXPECT_FALSE(reader->contains("v"));
}

TEST(SafetensorsReader, ReadsSeveralFilesByTheIndex) {
  TempFolder folder;
  put_file(folder / "model.safetensors.index.json",
           R"({"metadata": {}, "weight_map": {"b": "2.safetensors", "a": "1.safetensors"}})");
  put_file(folder / "1.safetensors", one_tensor("a", "F32", 1, bytes<float>({1.0f})));
  put_file(folder / "2.safetensors", one_tensor("b", "F32", 1, bytes<float>({2.0f})));
  for (const std::string& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const auto reader = SafetensorsReader::open(path);
    ASSERT_EQ(reader->tensors().size(), 2u);
    EXPECT_EQ(reader->tensors()[0].name, "a");
    EXPECT_THAT(values_of(*reader, "a", 0, 1), ElementsAre(1.0f));
    EXPECT_THAT(values_of(*reader, "b", 0, 1), ElementsAre(2.0f));
  }
}

TEST(SafetensorsReader, AnIndexThatDoesNotFitItsFilesIsRefused) {
  TempFolder folder;
  const std::string index = folder / "model.safetensors.index.json";
  put_file(folder / "1.safetensors", one_tensor("a", "F32", 1, bytes<float>({1.0f})));
  put_file(folder / "2.safetensors", one_tensor("a", "F32", 1, bytes<float>({2.0f})));
  put_file(index, R"({"weight_map": {"a": "1.safetensors", "b": "3.safetensors", "c": "4.safetensors"}})");
  EXPECT_THAT(open_problem(index), AllOf(HasSubstr("3.safetensors, 4.safetensors"), HasSubstr("not there")));
  put_file(index, R"({"weight_map": {"a": "1.safetensors", "lost": "1.safetensors"}})");
  EXPECT_THAT(open_problem(index), AllOf(HasSubstr("do not hold"), HasSubstr("lost")));
  put_file(index, R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  EXPECT_THAT(open_problem(index), AllOf(HasSubstr("a is in"), HasSubstr("2.safetensors")));
  put_file(index, R"({"weight_map": {"a": "../1.safetensors"}})");
  EXPECT_THAT(open_problem(index), HasSubstr("no file name for a"));
  put_file(index, R"({"map": {}})");
  EXPECT_THAT(open_problem(index), HasSubstr("weight_map"));
}

TEST(SafetensorsReader, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(open_problem("/nowhere/m.safetensors"), AllOf(HasSubstr("/nowhere/m.safetensors"), HasSubstr("No such")));
}

TEST(SafetensorsReader, IntegersAreNotReadAsWeights) {
  TempFolder folder;
  put_file(folder / "m.safetensors", one_tensor("ids", "I32", 1, bytes<int32_t>({7})));
  const auto reader = SafetensorsReader::open(folder / "m.safetensors");
  EXPECT_THAT(message_of([&] { values_of(*reader, "ids", 0, 1); }), AllOf(HasSubstr("ids is I32"), HasSubstr("BF16")));
}

}  // namespace shoal
