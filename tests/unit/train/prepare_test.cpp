#include "train/prepare.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

TrainOptions tiny() {
  TrainOptions options;
  options.model = "llama-tiny";
  options.data = "synthetic:tokens=100000";
  options.steps = 10;
  options.sequence = 128;
  return options;
}

TEST(PrepareRun, OpensModelConfigAndData) {
  const PreparedRun run = prepare_run(tiny(), 2);
  EXPECT_EQ(run.world, 2);
  EXPECT_EQ(run.model->info().vocab, 256);
  EXPECT_EQ(run.config.batch.train_batch_size, 16);
  EXPECT_EQ(run.data.numel(), 100000);
  EXPECT_EQ(run.cut.sequence, 128);
  EXPECT_EQ(run.start.train_samples, 781 - 40);
}

TEST(PrepareRun, ASampleIsAsLongAsTheModelAllowsUpTo1024) {
  TrainOptions options = tiny();
  options.sequence = 0;
  EXPECT_EQ(prepare_run(options, 1).cut.sequence, 1024);
}

TEST(PrepareRun, ASequenceThatIsTooLongIsRefusedWithTheKeyThatLimitsIt) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& model_type) {
    folder.write("config.json", R"({"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 256,
      "sliding_window": 32,
      "model_type": ")" + model_type +
                                    "\"}");
    TrainOptions options = tiny();
    options.model = folder.path();
    return message_of([&] { prepare_run(options, 1); });
  };
  EXPECT_THAT(refusal("llama"), HasSubstr("can take, 64: that is its max_position_embeddings. Give 64 or fewer."));
  // A window is no limit.
  EXPECT_THAT(refusal("mistral"), HasSubstr("can take, 64: that is its max_position_embeddings. Give 64 or fewer."));
}

TEST(PrepareRun, AStopBehindTheEndIsRefused) {
  TrainOptions options = tiny();
  options.stop_at = 11;
  EXPECT_THAT(message_of([&] { prepare_run(options, 1); }), HasSubstr("[--stop-at] 11 is beyond the run's 10 steps."));
  options.stop_at = 10;
  EXPECT_EQ(message_of([&] { prepare_run(options, 1); }), "");
}

TEST(PrepareRun, DefersUpdatesUnlessToldNotTo) {
  TrainOptions options = tiny();
  EXPECT_EQ(prepare_run(options, 1).config.shoal.defer_update, DeferUpdate::on);
  options.overrides = {"shoal.defer_update=off"};
  EXPECT_EQ(prepare_run(options, 1).config.shoal.defer_update, DeferUpdate::off);
}

TEST(PrepareRun, InputsOnTheHostNeedFullRecompute) {
  TrainOptions options = tiny();
  options.overrides = {"activation_checkpointing.cpu_checkpointing=true"};
  for (const models::Recompute recompute : {models::Recompute::none, models::Recompute::selective}) {
    options.recompute = recompute;
    EXPECT_THAT(message_of([&] { prepare_run(options, 1); }),
                AllOf(HasSubstr("[config activation_checkpointing.cpu_checkpointing] true, and --recompute is"),
                      HasSubstr(models::name_of(recompute)), HasSubstr("Give --recompute full")));
  }
  options.recompute = models::Recompute::full;
  const PreparedRun run = prepare_run(options, 1);
  EXPECT_EQ(activations_of(run, run.model->recomputed(), at::kCPU).host, 0u);
  EXPECT_GT(activations_of(run, run.model->recomputed(), at::kCUDA).host, 0u);
}

TEST(PrepareRun, SaysWhatToChange) {
  const auto message = [](auto change) {
    TrainOptions options = tiny();
    change(options);
    return message_of([&] { prepare_run(options, 2); });
  };
  EXPECT_THAT(message([](TrainOptions& o) { o.steps = 0; }), HasSubstr("[--steps]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.validation = 1; }), HasSubstr("[--validation]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.save_every = 5; }), HasSubstr("[--out]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.resume = "auto"; }), HasSubstr("[--out]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.digest_every = 1; }), HasSubstr("[--digest-every]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.sequence = 1 << 20; }), HasSubstr("[--sequence]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.eval_every = 1, o.validation = 0.001; }), HasSubstr("[--eval-every]"));
  EXPECT_THAT(message([](TrainOptions& o) { o.data = "synthetic:tokens=1000"; }), HasSubstr("fewer than one global"));
  EXPECT_THAT(message([](TrainOptions& o) { o.overrides = {"train_batch_size=3"}; }), HasSubstr("[config"));
}

TEST(PrepareRun, AFolderThatCannotBeWrittenIsFoundBeforeRanksStart) {
  TrainOptions options = tiny();
  options.out = "/dev/null/run";
  EXPECT_THAT(message_of([&] { prepare_run(options, 2); }), HasSubstr("[--out] /dev/null/run cannot be written"));
}

TEST(FindStart, DoesNotBeginAgainOverCheckpointsThatAreAllBroken) {
  const TempFolder folder;
  TrainOptions options = tiny();
  options.out = folder / "run";
  options.resume = "auto";
  std::filesystem::create_directories(folder / "run/checkpoints/step-00000004");
  EXPECT_THAT(message_of([&] { find_start(options); }), HasSubstr("none of them is complete"));
}

TEST(FindStart, DoesNotWriteOneRunOverAnother) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "a/checkpoints/step-00000004");
  std::filesystem::create_directories(folder / "b/checkpoints");
  folder.write("a/checkpoints/step-00000004/manifest.json", "{}");
  folder.write("a/metrics.jsonl", "");
  folder.write("b/metrics.jsonl", "");
  TrainOptions options = tiny();
  options.resume = folder / "a/checkpoints/step-00000004";
  options.out = folder / "b";
  EXPECT_THAT(message_of([&] { find_start(options); }), HasSubstr("holds another run"));
  options.out = folder / "a";
  EXPECT_EQ(message_of([&] { find_start(options); }), "");
}

TEST(FindStart, ARestartGoesOnFromWhatItIsTold) {
  const TempFolder folder;
  TrainOptions options = tiny();
  options.out = folder / "run";
  folder.write("run/metrics.jsonl", "");
  options.restarted_from = "";
  EXPECT_EQ(find_start(options), "");
  options.restarted_from = folder / "run/checkpoints/step-00000004";
  options.resume = folder / "elsewhere";
  EXPECT_EQ(find_start(options), *options.restarted_from);
}

TEST(FindStart, GoesOnOnlyWhenTold) {
  const TempFolder folder;
  TrainOptions options = tiny();
  EXPECT_EQ(find_start(options), "");
  options.out = folder / "run";
  EXPECT_EQ(find_start(options), "");
  folder.write("run/metrics.jsonl", "");
  EXPECT_THAT(message_of([&] { find_start(options); }), HasSubstr("holds a run already"));
  options.resume = "auto";
  EXPECT_EQ(find_start(options), "") << "no checkpoint yet: from the start";
  options.resume = folder / "none";
  EXPECT_THAT(message_of([&] { find_start(options); }), HasSubstr("[--resume]"));
}

}  // namespace
}  // namespace shoal::train
