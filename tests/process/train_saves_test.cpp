// Saves of `shoal train` behind training: the checkpoints and the numbers of a run that waits for them, and what both
// say of it.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "process/step_gate.h"
#include "process/train_run.h"
#include "unit/checkpoint/folder_bytes.h"
#include "unit/launch/processes.h"

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
  EXPECT_THAT(small.out, HasSubstr("on rank 0 (shoal.save_memory): training waits while the rest is written"));
  const Result waited = train(folder, "wide", "waited",
                              {"--steps", "2", "--save-every", "1", "--save-and-wait", "--set", "shoal.save_memory=1"});
  ASSERT_EQ(waited.exit_code, 0) << waited.out << waited.err;
  for (const char* file : {"step-00000001/rank-00000.bin", "step-00000002/rank-00000.bin"}) {
    const std::string bytes = folder.read(std::string("small/checkpoints/") + file);
    EXPECT_FALSE(bytes.empty());
    EXPECT_TRUE(bytes == folder.read(std::string("waited/checkpoints/") + file)) << file;
  }
}

// Told at the gate of step 3: the save of step 2 is still under way, and that of step 3 begins before the run hears.
TEST(TrainSaves, SigtermWaitsForTheSavesThatAreUnderWay) {
  const RunFolder folder;
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", {"--steps", "9", "--save-every", "1", "--log", "csv"}));
  ASSERT_TRUE(gate.pass(2)) << command.err();
  const auto steps = [&] { return column(folder.read("run/metrics.jsonl"), "step").size(); };
  ASSERT_TRUE(eventually([&] { return steps() == 3; }));
  command.kill(SIGTERM);
  gate.open();
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 143) << result.out << result.err;
  for (const char* step : {"step-00000001", "step-00000002", "step-00000003"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / ("run/checkpoints/" + std::string(step)))) << step;
  }
  EXPECT_EQ(folder.read("run/checkpoints/latest"), "step-00000003\n");
  EXPECT_THAT(result.err, Not(HasSubstr("is lost")));
}

// Its first step makes weights of which no loss is finite. Step 2 comes by once, and a save needs that twice.
TEST(TrainSaves, AnEndWithoutFiniteLossesWaitsForTheSaveThatIsUnderWay) {
  const RunFolder folder;
  Words words = train_words(folder, "llama", "run", {"--steps", "9", "--save-every", "1", "--max-nonfinite", "1"});
  std::replace(words.begin(), words.end(), std::string("0.01"), std::string("1e30"));
  const Result result = Command(words).wait();
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_EQ(folder.read("run/checkpoints/latest"), "step-00000001\n") << result.out << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints/step-00000002"));
}

}  // namespace
}  // namespace shoal::testing
