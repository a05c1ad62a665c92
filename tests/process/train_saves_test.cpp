// Saves of `shoal train` behind training: the checkpoints and the numbers of a run that waits for them, and what both
// say of it.
#include <gmock/gmock.h>

#include "process/train_run.h"
#include "unit/checkpoint/folder_bytes.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainSaves, BehindTrainingAreThoseThatAreWaitedFor) {
  const RunFolder folder;
  const Words every = {"--steps", "6", "--save-every", "1", "--ranks", "2"};
  const Result behind = train(folder, "gpt2", "behind", every);
  const Result waited = train(folder, "gpt2", "waited", every + Words{"--save-and-wait"});
  ASSERT_EQ(behind.exit_code, 0) << behind.out << behind.err;
  ASSERT_EQ(waited.exit_code, 0) << waited.out << waited.err;
  EXPECT_EQ(std::filesystem::exists(folder / "behind/checkpoints/step-00000006"), true);
  EXPECT_TRUE(bytes_of_folder(folder / "behind/checkpoints") == bytes_of_folder(folder / "waited/checkpoints"));
  expect_same_characters(folder, "behind", "waited");
  EXPECT_THAT(behind.out, HasSubstr("saves      behind training, through "));
  EXPECT_THAT(behind.out, HasSubstr("step-00000006 behind training in "));
  EXPECT_THAT(waited.out, Not(HasSubstr("behind training")));
  for (const char* run : {"behind", "waited"}) {
    const std::vector<double> held_up = numbers(column(folder.read(std::string(run) + "/metrics.jsonl"), "save_ms"));
    ASSERT_EQ(held_up.size(), 6u);
    EXPECT_EQ(held_up[0], 0) << "no save came before";
    for (size_t step = 1; step < held_up.size(); ++step) EXPECT_GT(held_up[step], 0) << run << " " << step;
    const std::vector<std::string> events = column(folder.read(std::string(run) + "/events.jsonl"), "event");
    EXPECT_EQ(std::count(events.begin(), events.end(), "\"save\""), 6) << run;
  }
}

TEST(TrainSaves, AsksForSavesBeforeItWaitsForThem) {
  const RunFolder folder;
  const Result result = train(folder, "gpt2", "run", {"--steps", "1", "--save-and-wait"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--save-every"));
}

// A memory that is smaller than what is saved: the line says how much, and that training waits.
TEST(TrainSaves, ASmallMemoryIsSaidAndSavesTheSame) {
  const RunFolder folder;
  // 1.9 million parameters: 22 MiB with their moments, and the least memory is 20.
  const Words run = {"--steps", "2", "--save-every", "1", "--set", "shoal.save_memory=1"};
  folder.write("wide/config.json",
               R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
      "vocab_size": 30000})");
  const Result small = train(folder, "wide", "small", run);
  ASSERT_EQ(small.exit_code, 0) << small.out << small.err;
  EXPECT_THAT(small.out, HasSubstr("a rank (shoal.save_memory): training waits while the rest is written"));
  const Result waited = train(folder, "wide", "waited",
                              {"--steps", "2", "--save-every", "1", "--save-and-wait", "--set", "shoal.save_memory=1"});
  ASSERT_EQ(waited.exit_code, 0) << waited.out << waited.err;
  EXPECT_TRUE(bytes_of_folder(folder / "small/checkpoints") == bytes_of_folder(folder / "waited/checkpoints"));
}

}  // namespace
}  // namespace shoal::testing
