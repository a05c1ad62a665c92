#include "models/open_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "checkpoint/safetensors.h"
#include "training/outcome.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::message_of;
using testing::open_json;
using testing::put_file;
using testing::TempFolder;
using testing::tiny_llama_json;

namespace {

std::string problem_of(const std::string& name) {
  return message_of([&] { open_model(name); });
}

int64_t resident_nbytes() {
  std::ifstream file("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::vector<SafeTensor> tensors_of(const LanguageModel& model) {
  std::vector<SafeTensor> tensors;
  for (const Unit& unit : model.units()) {
    for (const Parameter& param : unit.params) tensors.push_back({param.name, "", param.tensor.sizes().vec()});
  }
  return tensors;
}

void fill_zeros(const std::string&, int64_t, int64_t numel, float* out) { std::fill_n(out, numel, 0.0f); }

}  // namespace

TEST(OpenModel, BuiltInModelsHaveTheirPublishedNumberOfParameters) {
  const std::map<std::string, int64_t> wanted = {{"gpt2", 124'439'808},           {"llama-7b", 6'738'415'616},
                                                 {"llama-8b", 8'030'261'248},     {"llama-13b", 13'015'864'320},
                                                 {"llama-2-70b", 68'976'648'192}, {"llama-405b", 405'853'388'800}};
  for (const auto& [name, numel] : wanted) EXPECT_EQ(open_model(name)->info().numel, numel) << name;
  EXPECT_NEAR(static_cast<double>(open_model("llama-33m")->info().numel), 33.7e6, 0.5e6);
  const auto tiny = open_model("llama-tiny");
  EXPECT_NEAR(static_cast<double>(tiny->info().numel), 3e6, 0.5e6);
  EXPECT_TRUE(tiny->info().byte_tokens);
  EXPECT_EQ(tiny->info().vocab, 256);
  EXPECT_GE(tiny->info().max_positions, 256);
}

TEST(OpenModel, EveryBuiltInNameOpens) {
  for (const std::string& name : builtin_models()) {
    const auto model = open_model(name);
    EXPECT_EQ(model->info().name, name);
    EXPECT_EQ(static_cast<int64_t>(model->units().size()), model->info().layers + 2);
  }
}

// The time of a step is counted from the shape, its bytes from the parameters.
TEST(OpenModel, TheShapeHasTheMatricesOfTheModel) {
  for (const char* name : {"gpt2", "llama-tiny", "llama-8b", "llama-2-70b"}) {
    const auto model = open_model(name);
    const forecast::DecoderShape& shape = model->info().shape;
    const std::vector<Unit> units = model->units();
    const auto matrices = [&](size_t unit) {
      int64_t numel = 0;
      for (const Parameter& param : units[unit].params) numel += param.tensor.dim() == 2 ? param.tensor.numel() : 0;
      return numel;
    };
    EXPECT_EQ(shape.layers, model->info().layers) << name;
    EXPECT_EQ(shape.block_numel(), matrices(1)) << name;
    EXPECT_EQ(shape.head_numel(), matrices(units.size() - 1)) << name;  // of a tied head too
  }
}

TEST(OpenModel, AConfigAloneIsEnough) {
  const auto model = open_model_of_config(tiny_llama_json(), "step-00000004");
  EXPECT_EQ(model->info().name, "step-00000004");
  EXPECT_EQ(model->config_json(), open_json(tiny_llama_json())->config_json());
  EXPECT_THAT(message_of([] { open_model_of_config(R"({"model_type": "bert"})", "step-00000004"); }),
              HasSubstr("[config.json of step-00000004 model_type] \"bert\""));
}

TEST(OpenModel, AModelLargerThanMemoryTakesNone) {
  open_model("llama-13b");  // what is loaded once
  const int64_t before = resident_nbytes();
  const auto model = open_model("llama-13b");
  EXPECT_EQ(model->units().size(), 42u);
  EXPECT_LT(resident_nbytes() - before, int64_t{32} << 20);
}

TEST(OpenModel, AConfigWithoutWeightsIsInitialisedBySeed) {
  const auto first_value = [](uint64_t seed) {
    const auto model = open_json(tiny_llama_json(), {.seed = seed});
    float value = 0;
    model->units()[0].params.at(0).source->read(0, 1, &value);
    return value;
  };
  EXPECT_EQ(first_value(1), first_value(1));
  EXPECT_NE(first_value(1), first_value(2));
}

TEST(OpenModel, AnExportedModelOpensAgain) {
  for (const std::string& config : {tiny_llama_json(), testing::tiny_gpt2_json()}) {
    const auto model = open_json(config);
    TempFolder folder;
    put_file(folder / "config.json", model->config_json());
    write_safetensors(folder.path(), tensors_of(*model), {.max_shard_nbytes = 500}, fill_zeros);
    for (const std::string& path : {folder.path(), folder / "config.json"}) {
      const auto again = open_model(path);
      EXPECT_EQ(again->info().numel, model->info().numel);
      EXPECT_EQ(again->config_json(), model->config_json());
    }
  }
}

TEST(OpenModel, TheAuxiliaryLossMayBeAskedFor) {
  const std::string mixtral = testing::tiny_dense_json("mixtral", R"(, "num_key_value_heads": 1)");
  EXPECT_EQ(open_json(mixtral)->info().experts.balance, 0);
  const auto model = open_json(mixtral, {.router_aux_loss = 0.25});
  EXPECT_EQ(model->info().experts.balance, 0.25);
  EXPECT_EQ(open_json(model->config_json())->info().experts.balance, 0.25) << "as the exported config says";
  EXPECT_EQ(open_json(model->config_json(), {.router_aux_loss = 0.0})->info().experts.balance, 0);
  EXPECT_THAT(message_of([] { open_json(tiny_llama_json(), {.router_aux_loss = 0.25}); }),
              HasSubstr("[--router-aux-loss]"));
}

TEST(OpenModel, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(problem_of("llama-7bb"), AllOf(HasSubstr("Did you mean llama-7b?"), HasSubstr("gpt2")));
  EXPECT_THAT(problem_of("/nowhere"), HasSubstr("/nowhere"));
  EXPECT_THAT(problem_of("google/gemma-2-2b"),
              HasSubstr("hf download google/gemma-2-2b --local-dir DIR, and give DIR."));
  EXPECT_THAT(problem_of("an-owner/A-Model-1B"),
              HasSubstr("Nothing is fetched from the Hub here: hf download an-owner/A-Model-1B --local-dir DIR"));
  for (const char* path : {"./nowhere", "/nowhere/model", "a/b/c", "nowhere/"}) {
    EXPECT_THAT(problem_of(path), ::testing::Not(HasSubstr("Hub"))) << path;
  }
  EXPECT_THAT(builtin_models(), Contains("llama-tiny"));
}

// The process stands in a folder for a while.
class Inside {
 public:
  explicit Inside(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~Inside() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

TEST(OpenModel, AFolderComesBeforeABuiltInNameAndBothAreNamed) {
  const TempFolder folder;
  const Inside inside(folder.path());
  EXPECT_EQ(name_clash("gpt2"), "");
  folder.write("gpt2/notes.txt", "a run's folder, say");
  EXPECT_EQ(open_model("gpt2")->info().origin, "built-in model gpt2");
  folder.write("gpt2/model.safetensors", "");
  EXPECT_EQ(problem_of("gpt2"),
            "[model gpt2] is a folder here, with model.safetensors and without a config.json, and a built-in name. Put "
            "the config.json into the folder, or write builtin:gpt2 for the built-in model.");
  std::filesystem::remove(folder / "gpt2/model.safetensors");
  folder.write("gpt2/config.json", testing::tiny_gpt2_json());
  const auto own = open_model("gpt2");
  EXPECT_EQ(own->info().origin, "gpt2/config.json");
  EXPECT_EQ(own->info().vocab, testing::kTinyVocab);
  EXPECT_EQ(open_model("builtin:gpt2")->info().vocab, 50257);
  EXPECT_EQ(name_clash("gpt2"),
            "gpt2 is a folder here and a built-in name: the folder is taken. The built-in model is builtin:gpt2");
  EXPECT_EQ(name_clash("builtin:gpt2"), "");
  EXPECT_THAT(problem_of("builtin:gtp2"), HasSubstr("gtp2 is not built in. Did you mean gpt2?"));
  EXPECT_EQ(model_folder("gpt2"), "gpt2");
  EXPECT_EQ(model_folder("gpt2/config.json"), "gpt2");
  EXPECT_EQ(model_folder("builtin:gpt2"), "");
}

TEST(OpenModel, KnowsWhereItsFirstWeightsComeFrom) {
  const auto model = open_json(tiny_llama_json());
  EXPECT_EQ(model->info().weights_from, "");
  const TempFolder folder;
  put_file(folder / "config.json", tiny_llama_json());
  write_safetensors(folder.path(), tensors_of(*model), {}, fill_zeros);
  EXPECT_EQ(open_model(folder.path())->info().weights_from, folder.path());
}

TEST(OpenModel, APointerOfGitLfsIsNamed) {
  constexpr const char* kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2048\n";
  const TempFolder folder;
  put_file(folder / "config.json", kPointer);
  EXPECT_THAT(problem_of(folder.path()), AllOf(HasSubstr("config.json] is a pointer of Git LFS"),
                                               HasSubstr("which has 2 KiB. Fetch it: run `git lfs pull`")));
  put_file(folder / "config.json", tiny_llama_json());
  put_file(folder / "model.safetensors", kPointer);
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("model.safetensors] is a pointer of Git LFS"));
}

TEST(OpenModel, AnUnknownArchitectureIsRefusedWithTheKnownOnes) {
  const auto problem = [](const std::string& config) { return message_of([&] { open_json(config); }); };
  EXPECT_THAT(
      problem(R"({"model_type": "bert"})"),
      AllOf(HasSubstr("model_type] \"bert\""), HasSubstr("LlamaForCausalLM"), HasSubstr("gpt2 (GPT2LMHeadModel)"),
            HasSubstr("gemma2 (Gemma2ForCausalLM)"), HasSubstr("`import shoal` or `import deepspeed`")));
  EXPECT_THAT(problem(R"({"architectures": ["MambaForCausalLM"]})"), HasSubstr("architectures] \"MambaForCausalLM\""));
  EXPECT_THAT(problem(R"({})"), HasSubstr("architectures"));
  EXPECT_THAT(problem(tiny_llama_json(R"(, "architectures": ["LlamaForSequenceClassification"])")),
              HasSubstr("LlamaForSequenceClassification"));
  EXPECT_EQ(problem(tiny_llama_json(R"(, "architectures": ["LlamaForCausalLM"])")), "");
}

TEST(OpenModel, WithoutAModelTypeTheArchitectureDecides) {
  std::string config = tiny_llama_json(R"(, "num_key_value_heads": 2, "architectures": ["Qwen2ForCausalLM"])");
  config.replace(config.find(R"("model_type": "llama", )"), std::string(R"("model_type": "llama", )").size(), "");
  const auto model = open_json(config);
  EXPECT_THAT(model->config_json(), HasSubstr(R"("model_type": "qwen2")"));
  EXPECT_EQ(model->units()[1].params.at(4).name, "model.layers.0.self_attn.q_proj.bias");
}

TEST(OpenModel, WeightsThatDoNotFitAreNamed) {
  const auto model = open_json(tiny_llama_json());
  std::vector<SafeTensor> tensors = tensors_of(*model);
  tensors.pop_back();
  tensors.push_back({"model.layers.7.odd", "", {1}});
  TempFolder folder;
  put_file(folder / "config.json", tiny_llama_json());
  write_safetensors(folder.path(), tensors, {}, fill_zeros);
  EXPECT_THAT(problem_of(folder.path()),
              AllOf(HasSubstr("Missing: lm_head.weight."), HasSubstr("Not expected: model.layers.7.odd.")));
}

TEST(OpenModel, WeightsInAnotherFormAreNotReplacedByRandomOnes) {
  for (const char* file : {"pytorch_model.bin", "model-00001-of-00002.safetensors", "pytorch_model.bin.index.json"}) {
    TempFolder folder;
    put_file(folder / "config.json", tiny_llama_json());
    put_file(folder / file, "");
    EXPECT_THAT(problem_of(folder.path()), AllOf(HasSubstr(file), HasSubstr("safetensors")));
  }
}

TEST(OpenModel, ATruncatedFileIsNamed) {
  const auto model = open_json(tiny_llama_json());
  TempFolder folder;
  put_file(folder / "config.json", tiny_llama_json());
  write_safetensors(folder.path(), tensors_of(*model), {}, fill_zeros);
  std::filesystem::resize_file(folder / "model.safetensors",
                               std::filesystem::file_size(folder / "model.safetensors") - 1);
  EXPECT_THAT(problem_of(folder.path()), AllOf(HasSubstr("model.safetensors"), HasSubstr("truncated")));
}

}  // namespace shoal::models
