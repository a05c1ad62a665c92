// `shoal plan` as a user meets it. The counting itself is tested in tests/unit/plan, and against the engine in
// tests/ranks/plan_matches_engine_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "process/command.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::Command;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Result;

Result plan(std::vector<std::string> words) {
  words.insert(words.begin(), {SHOAL_BINARY, "plan"});
  return Command(words).wait();
}

TEST(CliPlan, ShowsTheClassicNumbersOf7B) {
  const Result result = plan({"--params", "7e9", "--world", "8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line : {"0            104.3 GiB       91.27 GiB\n", "1            35.86 GiB       34.23 GiB\n",
                           "2            24.45 GiB       22.82 GiB\n", "3*           13.04 GiB       11.41 GiB\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST(CliPlan, SaysPlainlyThat70BDoNotFitOn8CardsOf24GB) {
  const Result result = plan({"--params", "70e9", "--world", "8", "--gpu-memory", "24GB"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("3*           130.4 GiB       114.1 GiB  no\n"));
  EXPECT_THAT(result.out,
              HasSubstr("Stage 3 does not fit: 114.1 GiB a rank; 21.68 GiB of a GPU's 22.35 GiB may be taken.\n"));
  EXPECT_THAT(result.out, Not(HasSubstr(" GB"))) << "memory is in GiB throughout";
  EXPECT_THAT(result.out,
              HasSubstr("offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu would fit"));
}

TEST(CliPlan, ReadsTheConfigAndWhatIsSetOverIt) {
  const auto file = std::filesystem::temp_directory_path() / ("shoal_plan_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
                            "zero_optimization": {"stage": 2}})";
  const Result result =
      plan({"--model", "llama-tiny", "--world", "4", "--config", file.string(), "--set", "zero_optimization.stage=1",
            "--set", "zero_optimization.stage3_param_persistence_threshold=0", "--sequence", "64", "--json"});
  std::filesystem::remove(file);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json::Value root = json::parse(result.out, "plan");
  EXPECT_EQ(root.find("stage")->as_integer(), 1);
  EXPECT_EQ(root.find("precision")->as_text(), "bf16");
  EXPECT_EQ(root.find("world")->as_integer(), 4);
  const json::Array& stages = root.find("stages")->as_array();
  for (const json::Value& stage : stages) EXPECT_GT(stage.find("activations")->as_integer(), 0);
  EXPECT_LT(stages[3].find("weights")->as_integer(), stages[0].find("weights")->as_integer() / 2);
  EXPECT_GT(stages[3].find("gathered")->as_integer(), 0);
}

TEST(CliPlan, OpensAModelLargerThanThisMachine) {
  const Result result = plan(
      {"--model", "llama-13b", "--world", "8", "--set", "bf16.enabled=true", "--gpu-memory", "80GiB", "--batch", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nStage 3 fits: "));
}

// With a GPU the precision is bf16 unless the user says otherwise, by the count and by the model alike.
TEST(CliPlan, CountsInBf16ForAGpu) {
  const auto precision = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--world", "1", "--json"});
    return json::parse(plan(more).out, "plan").find("precision")->as_text();
  };
  EXPECT_EQ(precision({"--params", "7e9", "--gpu-memory", "200GiB"}), "bf16");
  EXPECT_EQ(precision({"--model", "llama-tiny", "--gpu-memory", "80GiB", "--set", "fp16.enabled=true"}), "fp16");
  EXPECT_EQ(precision({"--model", "llama-tiny"}), "fp32");
  EXPECT_THAT(plan({"--model", "llama-tiny", "--world", "1", "--gpu-memory", "80GiB"}).out,
              AllOf(HasSubstr(", bf16, 1 rank"),
                    HasSubstr("\nNo --config: counted in bf16. Without a config shoal train is fp32: ")));
}

TEST(CliPlan, SaysByItsExitCodeWhetherItFits) {
  const auto code = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--params", "7e9", "--world", "1"});
    return plan(more).exit_code;
  };
  EXPECT_EQ(code({"--gpu-memory", "100GiB"}), 0);
  EXPECT_EQ(code({"--gpu-memory", "93GiB", "--json"}), 3) << "91.27 GiB, and 3 % stay free";
}

TEST(CliPlan, CountsWhatRecomputeLeavesAndWhatGoesToTheHost) {
  const auto stage3 = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", "llama-1b", "--world", "1", "--set", "bf16.enabled=true", "--gpu-memory",
                               "80GiB", "--batch", "8", "--sequence", "2048", "--json"});
    const Result result = plan(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json::Value root = json::parse(result.out, "plan");
    const json::Value& stage = root.find("stages")->as_array()[3];
    return std::make_pair(stage.find("activations")->as_integer(), stage.find("host_activations")->as_integer());
  };
  const auto none = stage3({}), selective = stage3({"--recompute", "selective"}),
             full = stage3({"--recompute", "full"});
  const auto moved = stage3({"--recompute", "full", "--set", "activation_checkpointing.cpu_checkpointing=true"});
  EXPECT_GT(none.first, selective.first);
  EXPECT_GT(selective.first, full.first);
  EXPECT_GT(full.first, moved.first);
  EXPECT_EQ(full.second, 0);
  EXPECT_EQ(moved.second, int64_t{16} * 8 * 2048 * 2048 * 2);
}

TEST(CliPlan, KeepsTheActivationsThatFit) {
  const auto text = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", "llama-8b", "--world", "1", "--set", "bf16.enabled=true", "--batch", "8",
                               "--sequence", "2048", "--recompute", "auto"});
    return plan(more);
  };
  EXPECT_THAT(text({"--gpu-memory", "200GiB"}).out, Not(HasSubstr("recompute")));
  EXPECT_THAT(
      text({"--gpu-memory", "134GiB"}).out,
      AllOf(HasSubstr(", recompute full in 19 of 32 blocks, selective in the others"), HasSubstr("\nStage 3 fits: ")));
  const Result blind = text({});
  EXPECT_EQ(blind.exit_code, 2);
  EXPECT_THAT(blind.err, HasSubstr("--gpu-memory 80GiB"));
}

TEST(CliPlan, NamesTheRecomputeThatWouldFit) {
  const auto lines = [](const std::string& gpu) {
    return plan({"--model", "llama-1b", "--world", "1", "--set", "bf16.enabled=true", "--batch", "8", "--sequence",
                 "2048", "--gpu-memory", gpu})
        .out;
  };
  EXPECT_THAT(lines("29.2GiB"), HasSubstr("Stage 3 with --recompute selective would fit"));
  EXPECT_THAT(lines("19GiB"), HasSubstr("Stage 3 with --recompute full would fit"));
  EXPECT_THAT(lines("17GiB"), HasSubstr("Stage 3 with --recompute full --set "
                                        "activation_checkpointing.cpu_checkpointing=true would fit"));
}

}  // namespace
}  // namespace shoal
