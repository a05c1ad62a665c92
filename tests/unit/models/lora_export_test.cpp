#include "models/lora_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "message_of.h"
#include "models/base_digest.h"
#include "models/open_model.h"
#include "shoal/checkpoint.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::TinyTraining;

namespace {

// Some steps with LoRA in `folder`/run, on the model in `folder`/model; what it then gives for one batch.
double train_in(const TempFolder& folder, const std::string& config, const LoraSpec& spec) {
  std::filesystem::create_directories(folder / "model");
  testing::put_file(folder / "model/config.json", config);
  const auto world = make_single_group();
  TinyTraining training({.config_json = config, .open = {.seed = 7, .lora = spec}}, *world);
  for (int step = 0; step < 8; ++step) training.train_step(step);
  SaveOptions saving = {.folder = folder / "run", .step = 8};
  saving.trained_only = true;
  put_lora({.spec = training.model->info().lora->spec,
            .model = folder / "model",
            .seed = 7,
            .digest = digest_frozen(training.model->units(), *world)},
           saving.extra);
  save_checkpoint(training.engine, *world, saving);
  return training.evaluate(0);
}

double loss_of_folder(const std::string& folder) {
  const auto world = make_single_group();
  const auto model = open_model(folder);
  Engine engine(model->units(), TinyTraining::config_of({.config_json = ""}, 1), *world);
  double loss = 0;
  engine.evaluate([&] { loss = model->loss(engine, TinyTraining::tokens(0), TinyTraining::tokens(1)).item<double>(); });
  return loss;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const auto reader = SafetensorsReader::open(folder);
  for (const SafeTensor& tensor : reader->tensors()) names.push_back(tensor.name);
  return names;
}

}  // namespace

TEST(ExportMerged, ComputesWhatTheBaseWithItsAdaptersDoes) {
  for (const std::string& config :
       {testing::tiny_llama_json(R"(, "tie_word_embeddings": true)"), testing::tiny_gpt2_json(testing::kNoDropout)}) {
    const TempFolder folder;
    const double adapted = train_in(folder, config, {.rank = 3, .alpha = 12, .targets = {kAllLinear}});
    LoraExport what = {.checkpoint = folder / "run/step-00000008", .folder = folder / "merged"};
    const checkpoint::Exported exported = export_merged(what);
    EXPECT_NEAR(loss_of_folder(folder / "merged"), adapted, 2e-6);
    const auto plain = testing::open_json(config);
    EXPECT_EQ(exported.numel, plain->info().numel);
    EXPECT_EQ(names_in(folder / "merged").size(), static_cast<size_t>(exported.tensors));
    what.folder = folder / "again";
    what.base = folder / "model";
    export_merged(what);
    EXPECT_EQ(folder.read("again/model.safetensors"), folder.read("merged/model.safetensors"));
  }
}

TEST(ExportMerged, OfAMixtureHasATensorForEachExpert) {
  for (const std::string& config : testing::tiny_mixtures()) {
    const TempFolder folder;
    const double adapted = train_in(folder, config, {.rank = 3, .alpha = 12, .targets = {"q_proj", "o_proj"}});
    export_merged({.checkpoint = folder / "run/step-00000008", .folder = folder / "merged"});
    EXPECT_NEAR(loss_of_folder(folder / "merged"), adapted, 2e-6) << config;
    const std::vector<std::string> names = names_in(folder / "merged");
    EXPECT_THAT(names,
                ::testing::Contains(::testing::MatchesRegex("model\\.layers\\.1\\..*\\.experts\\.3\\..*\\.weight")));
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(HasSubstr("experts.gate_up_proj"))));
  }
}

TEST(ExportAdapter, HasPeftsNamesAndConfig) {
  const TempFolder folder;
  train_in(folder, testing::tiny_llama_json(), {.rank = 2, .alpha = 5, .dropout = 0.1, .targets = {"v_proj"}});
  const LoraExport what = {.checkpoint = folder / "run/step-00000008", .folder = folder / "adapter"};
  EXPECT_EQ(export_adapter(what).numel, 2 * 2 * (12 + 12));
  EXPECT_THAT(names_in(folder / "adapter/adapter_model.safetensors"),
              ElementsAre("base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
                          "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight",
                          "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight",
                          "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"));
  const json::Value config = json::parse(folder.read("adapter/adapter_config.json"), "config");
  EXPECT_EQ(config.find("r")->as_integer(), 2);
  EXPECT_EQ(config.find("lora_alpha")->as_integer(), 5);
  EXPECT_EQ(config.find("lora_dropout")->as_number(), 0.1);
  EXPECT_EQ(config.find("target_modules")->as_array().at(0).as_text(), "v_proj");
  EXPECT_EQ(config.find("base_model_name_or_path")->as_text(), folder / "model");
  EXPECT_FALSE(config.find("fan_in_fan_out")->as_boolean());
  EXPECT_THAT(message_of([&] { export_adapter(what); }), HasSubstr("holds adapter_model.safetensors already"));
}

TEST(LoraExport, RefusesWhatItCannotExport) {
  const TempFolder folder;
  train_in(folder, testing::tiny_llama_json(), {.rank = 2, .alpha = 5});
  const std::string lora = folder / "run/step-00000008";
  EXPECT_THAT(message_of([&] { checkpoint::export_safetensors(lora, folder / "out"); }),
              HasSubstr("Give --adapter for PEFT's format, or --merged for the whole model."));
  // Another base: of another seed.
  folder.write("other/config.json", testing::tiny_llama_json(R"(, "initializer_range": 0.03)"));
  EXPECT_THAT(
      message_of([&] { export_merged({.checkpoint = lora, .folder = folder / "out", .base = folder / "other"}); }),
      HasSubstr("has other weights than those that the adapters were trained on"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  // A whole model.
  const auto world = make_single_group();
  TinyTraining training({.config_json = testing::tiny_llama_json()}, *world);
  const std::string whole = save_checkpoint(training.engine, *world, {.folder = folder / "whole", .step = 1});
  EXPECT_THAT(message_of([&] { export_adapter({.checkpoint = whole, .folder = folder / "out"}); }),
              HasSubstr("is of a run without --lora, and there are no adapters in it. Leave --adapter out"));
  EXPECT_THAT(message_of([&] { export_merged({.checkpoint = whole, .folder = folder / "out"}); }),
              HasSubstr("Leave --merged out"));
  EXPECT_FALSE(lora_of_checkpoint(whole));
  EXPECT_EQ(lora_of_checkpoint(lora)->spec.rank, 2);
}

}  // namespace shoal::models
