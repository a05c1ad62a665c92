#include "checkpoint/export_safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/save.h"
#include "kernels/convert.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void save_filled(const std::string& folder, const std::map<std::string, std::string>& extra) {
  shoal::testing::on_ranks(2, [&](Group& group) {
    FakeState state(group.rank(), 2);
    state.fill();
    save_state(state.source(), group, {folder, 1, 0, extra});
  });
}

TEST(ExportSafetensors, WeightsReadBackInTheDtypeAskedFor) {
  const TempFolder temp;
  save_filled(temp.path(), {{"model_config", R"({"model_type": "llama", "torch_dtype": "float64"})"}});
  FakeState expected(0, 1);
  expected.fill();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string out = temp / std::string(name_of(dtype));
    SafetensorsWriteOptions options;
    options.dtype = dtype;
    const Exported exported = export_safetensors(temp / "step-00000001", out, options);
    EXPECT_EQ(exported.tensors, 5);
    EXPECT_EQ(exported.numel, 37 * 3 + 5 * 7 + 24 + 1);
    EXPECT_TRUE(exported.has_config);
    EXPECT_THAT(shoal::testing::names_of(out), ElementsAre("config.json", "model.safetensors"));
    EXPECT_EQ(json::parse(shoal::testing::text_of_file(out + "/config.json"), "config").find("torch_dtype")->as_text(),
              dtype == DType::f32 ? "float32" : "bfloat16");
    const auto reader = SafetensorsReader::open(out);
    EXPECT_EQ(reader->tensors().size(), 5u);
    for (size_t p = 0; p < expected.params_.size(); ++p) {
      std::vector<float> want = expected.values_.at({static_cast<int>(p), StateKind::weight});
      std::vector<float> got(want.size());
      std::vector<uint16_t> rounded(want.size());
      if (dtype == DType::bf16) {
        const auto numel = static_cast<int64_t>(want.size());
        kernels::convert(want.data(), DType::f32, rounded.data(), DType::bf16, numel);
        kernels::convert(rounded.data(), DType::bf16, want.data(), DType::f32, numel);
      }
      reader->read(expected.params_[p].name, 0, static_cast<int64_t>(got.size()), got.data());
      EXPECT_EQ(got, want) << expected.params_[p].name;
    }
    EXPECT_FALSE(reader->contains("head.tied"));
  }
}

// transformers takes no integer for some of them, and a parser sees none in 50.0.
TEST(ExportSafetensors, NumbersOfTheConfigStayAsTheyAreWritten) {
  for (const char* before : {"{\n  \"cap\": 50.0,\n  \"torch_dtype\": \"float64\"\n}\n", "{\n  \"cap\": 50.0\n}\n"}) {
    const TempFolder temp;
    save_filled(temp.path(), {{"model_config", before}});
    export_safetensors(temp / "step-00000001", temp / "out");
    EXPECT_EQ(shoal::testing::text_of_file(temp / "out/config.json"),
              "{\n  \"cap\": 50.0,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
  }
}

TEST(ExportSafetensors, GivesParametersInThePiecesOfTheModel) {
  const TempFolder temp;
  save_filled(temp.path(), {{"model_config", R"({"model_type": "some"})"}});
  FakeState expected(0, 1);
  expected.fill();
  const std::string whole = expected.params_[0].name;
  const std::vector<float> values = expected.values_.at({0, StateKind::weight});
  const auto numel = static_cast<int64_t>(values.size());
  std::string told;
  const Exported exported = export_safetensors(
      temp / "step-00000001", temp / "out", {.dtype = DType::f32}, [&](const std::string& model_config) {
        told = model_config;
        return StoredPieces{{whole, {{"piece.0", {2}, 0}, {"piece.1", {numel - 2}, 2}}}};
      });
  EXPECT_EQ(told, R"({"model_type": "some"})");
  EXPECT_EQ(exported.tensors, 6);
  const auto reader = SafetensorsReader::open(temp / "out");
  EXPECT_FALSE(reader->contains(whole));
  std::vector<float> read(values.size());
  reader->read("piece.0", 0, 2, read.data());
  reader->read("piece.1", 0, numel - 2, read.data() + 2);
  EXPECT_EQ(read, values);
}

TEST(ExportSafetensors, WithoutAModelConfigThereIsNoConfig) {
  const TempFolder temp;
  save_filled(temp.path(), {});
  EXPECT_FALSE(export_safetensors(temp / "step-00000001", temp / "out").has_config);
  EXPECT_THAT(shoal::testing::names_of(temp / "out"), ElementsAre("model.safetensors"));
}

TEST(ExportSafetensors, WhatAKilledExportLeftIsNoHindranceAndGoes) {
  const TempFolder temp;
  save_filled(temp.path(), {});
  std::filesystem::create_directory(temp / "out");
  for (const char* name : {"out/model.safetensors.partial", "out/model-00001-of-00002.safetensors.partial"}) {
    shoal::testing::put_file(temp / name, "half");
  }
  shoal::testing::put_file(temp / "out/other.partial", "not ours");
  export_safetensors(temp / "step-00000001", temp / "out");
  EXPECT_THAT(shoal::testing::names_of(temp / "out"), ElementsAre("model.safetensors", "other.partial"));
}

TEST(ExportSafetensors, DamageAndAFullFolderAreErrors) {
  const TempFolder temp;
  save_filled(temp.path(), {});
  export_safetensors(temp / "step-00000001", temp / "out");
  EXPECT_THAT(message_of([&] { export_safetensors(temp / "step-00000001", temp / "out"); }),
              HasSubstr("holds model.safetensors already"));
  shoal::testing::flip_bit(temp / "step-00000001/rank-00001.bin", 1);
  EXPECT_THAT(message_of([&] { export_safetensors(temp / "step-00000001", temp / "other"); }),
              HasSubstr("weight of wte, elements 55 to 110"));
}

}  // namespace
}  // namespace shoal::checkpoint
