#include "train/saved_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "checkpoint/listing.h"
#include "message_of.h"
#include "temp_folder.h"
#include "train/generate.h"
#include "train/trainer.h"

namespace shoal::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;
using testing::TempFolder;

TrainOptions adapting(const TempFolder& folder, const std::string& lora = "r=2,alpha=4,dropout=0.1") {
  TrainOptions options;
  options.model = folder / "model";
  folder.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "vocab_size": 256})");
  options.data = "synthetic:tokens=5000";
  options.steps = 6;
  options.lr = 1e-2;
  options.threads = 1;
  options.log_every = 0;
  options.lora = lora;
  options.out = folder / "run";
  return options;
}

int train_alone(const TrainOptions& options) { return train(options, prepare_run(options, 1)); }

// The lines of a run up to the times in them.
std::string numbers_of_run(const TempFolder& folder, const std::string& run) {
  std::string numbers;
  std::stringstream text(folder.read(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) numbers += line.substr(0, line.find("tokens_per_s")) + "\n";
  return numbers;
}

}  // namespace

TEST(SavedModel, ARunWithLoraGoesOnToTheBit) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const TempFolder folder;
    TrainOptions options = adapting(folder);
    if (precision != std::string("fp32")) options.overrides = {std::string(precision) + ".enabled=true"};
    options.digest_every = 1;
    EXPECT_EQ(train_alone(options), 0);
    TrainOptions halves = options;
    halves.out = folder / "halves";
    halves.save_every = 2;
    halves.stop_at = 3;
    EXPECT_EQ(train_alone(halves), 0);
    halves.stop_at = 0;
    halves.resume = "auto";
    EXPECT_EQ(train_alone(halves), 0);
    EXPECT_EQ(numbers_of_run(folder, "halves"), numbers_of_run(folder, "run")) << precision;
    EXPECT_EQ(folder.read("halves/digests.jsonl"), folder.read("run/digests.jsonl")) << precision;
    // 1 layer, q and v: of 16 x 16 and 8 x 16.
    for (const auto& row : checkpoint::list_checkpoints(folder / "halves")) {
      EXPECT_EQ(row.numel, 2 * (16 + 16) + 2 * (16 + 8));
      EXPECT_TRUE(row.trained_only);
    }
  }
}

TEST(SavedModel, AnotherLoraAtAResumeIsRefused) {
  const TempFolder folder;
  TrainOptions options = adapting(folder);
  options.stop_at = 2;
  EXPECT_EQ(train_alone(options), 0);
  options.resume = "auto";
  const auto refusal = [&](const std::string& lora) {
    TrainOptions other = options;
    other.lora = lora;
    return message_of([&] { prepare_run(other, 1); });
  };
  EXPECT_EQ(refusal("alpha=4,r=2,dropout=0.1,targets=v_proj+q_proj"), "");  // the same
  for (const char* lora : {"r=3,alpha=4,dropout=0.1", "r=2,alpha=5,dropout=0.1", "r=2,alpha=4",
                           "r=2,alpha=4,dropout=0.1,targets=q_proj"}) {
    EXPECT_THAT(refusal(lora), AllOf(StartsWith("[--lora] "), HasSubstr("was trained with r=2,alpha=4,targets="),
                                     HasSubstr("this run asks for r=")))
        << lora;
  }
  EXPECT_THAT(refusal(""), HasSubstr("was trained with --lora r=2,alpha=4,targets=q_proj+v_proj,dropout=0.1. Give it"));
  TrainOptions whole = adapting(folder, "");
  whole.out = folder / "whole";
  whole.stop_at = 2;
  EXPECT_EQ(train_alone(whole), 0);
  whole.resume = "auto";
  whole.lora = "r=2,alpha=4";
  EXPECT_THAT(message_of([&] { prepare_run(whole, 1); }), HasSubstr("was trained without it, as a whole model"));
}

TEST(SavedModel, AnotherBaseAtAResumeIsRefused) {
  const TempFolder folder;
  TrainOptions options = adapting(folder);
  options.stop_at = 2;
  EXPECT_EQ(train_alone(options), 0);
  options.resume = "auto";
  std::string config = folder.read("model/config.json");
  config.insert(1, R"("initializer_range": 0.03, )");
  folder.write("model/config.json", config);
  EXPECT_THAT(
      message_of([&] { train_alone(options); }),
      AllOf(StartsWith("[--model] "), HasSubstr("has other weights than those that the adapters were trained on")));
}

TEST(SavedModel, GenerateFindsTheBase) {
  const TempFolder folder;
  const TrainOptions options = adapting(folder);
  EXPECT_EQ(train_alone(options), 0);
  const auto written = [&](const GenerateOptions& generating) {
    std::string text;
    generate(generating, [&](std::string_view bytes) { text += bytes; });
    return text;
  };
  const GenerateOptions generating{.checkpoint = folder / "run", .prompt = "a", .tokens = 8, .temperature = 0};
  const std::string text = written(generating);
  EXPECT_EQ(text.size(), 9u);
  std::filesystem::rename(folder / "model", folder / "moved");
  EXPECT_THAT(message_of([&] { written(generating); }),
              HasSubstr("which is not there now. Say where it is: --model DIR"));
  GenerateOptions moved = generating;
  moved.model = folder / "moved";
  EXPECT_EQ(written(moved), text);
}

}  // namespace shoal::train
