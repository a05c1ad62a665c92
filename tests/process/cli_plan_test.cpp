// `shoal plan` as a user meets it. The counting itself is tested in tests/unit/plan, and against the engine in
// tests/ranks/plan_matches_engine_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "process/command.h"
#include "process/train_run.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::Command;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Result;
using testing::TempFolder;
using testing::operator+;
using testing::Words;

Result plan(std::vector<std::string> words) {
  words.insert(words.begin(), {SHOAL_BINARY, "plan"});
  return Command(words).wait();
}

TEST(CliPlan, CountsLora) {
  Words words = {"--model", "llama-8b", "--world", "1", "--gpu-memory", "24GiB", "--recompute", "full"};
  EXPECT_EQ(plan(words).exit_code, 3);
  words.insert(words.end(), {"--lora", "r=16,alpha=32"});
  const Result result = plan(words);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  // q: 32 layers of 16 x (4096 + 4096); v: of 16 x (4096 + 1024).
  EXPECT_THAT(result.out, HasSubstr("6,815,744 of them trained (0.0848 %)"));
  const auto refused = [](const Words& wrong_words) {
    const Result wrong = plan(wrong_words);
    EXPECT_EQ(wrong.exit_code, 2) << wrong.out;
    return wrong.err;
  };
  EXPECT_THAT(refused({"--model", "llama-8b", "--world", "1", "--lora", "r=16"}), HasSubstr("[--lora] has no alpha"));
  EXPECT_THAT(refused({"--params", "8e9", "--world", "1", "--lora", "r=16,alpha=1"}),
              HasSubstr("[--lora] names matrices"));
  EXPECT_THAT(refused({"--model", "llama-8b", "--time", "--cluster", "H100", "--lora", "r=16,alpha=1"}),
              HasSubstr("[--lora] --time and --search count steps that train every weight"));
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
  EXPECT_THAT(text({"--gpu-memory", "200GiB"}).out, Not(HasSubstr(", recompute")));
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

Words texts_of(const json::Value& list) {
  Words texts;
  for (const json::Value& text : list.as_array()) texts.push_back(text.as_text());
  return texts;
}

// Both ways of giving the settings: --set over the same config, and a config of their own.
TEST(CliPlanSettings, PlanTheSameEitherWayAndFit) {
  const TempFolder folder;
  const std::string hjson =
      folder.write("hjson.json", "zero_optimization: {stage: 0}  // no braces around it\ntrain_batch_size: 32\n");
  struct Case {
    Words words, config;  // `config` are those that the settings replace
    int code;
    std::string has;
  };
  const std::vector<Case> cases = {
      {{"--model", "llama-1b", "--world", "1", "--gpu-memory", "12GiB", "--host-memory", "100GiB", "--sequence", "512"},
       {},
       3,
       "zero_optimization.offload_optimizer.ratio="},
      {{"--model", "llama-1b", "--world", "1", "--gpu-memory", "19GiB", "--sequence", "2048", "--batch", "4"},
       {},
       3,
       "train_micro_batch_size_per_gpu=4"},
      {{"--params", "7e9", "--world", "8", "--gpu-memory", "40GiB"},
       {"--config", hjson, "--set", "bf16.enabled=true"},
       3,
       "zero_optimization.stage=1"},
      {{"--params", "7e9", "--world", "4", "--host-memory", "60GiB"},
       {"--set", "bf16.enabled=true"},
       3,
       "offload_optimizer.nvme_path=<folder>"},
      {{"--params", "7e9", "--world", "4", "--gpu-memory", "80GiB"}, {"--config", hjson}, 3, "stage=1"},
      {{"--params", "7e9", "--world", "8", "--gpu-memory", "80GiB"}, {}, 0, "bf16.enabled=true"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.has);
    const Result first = plan(each.words + each.config + Words{"--json"});
    EXPECT_EQ(first.exit_code, each.code) << first.err;
    const json::Value root = json::parse(first.out, "plan");
    const json::Value& settings = *root.find("settings");
    ASSERT_TRUE(settings.is_object()) << first.out;
    const Words set = texts_of(*settings.find("set"));
    EXPECT_THAT(set, ::testing::Contains(HasSubstr(each.has)));
    Words over = each.words + each.config, alone = each.words;
    for (const std::string& text : set) over = over + Words{"--set", text};
    const std::string path = folder.write("settings.json", json::write(*settings.find("config")));
    const Words flags = texts_of(*settings.find("flags")) + Words{"--json"};
    for (Words* words : {&over, &alone}) {  // what the settings say already
      for (const char* flag : {"--sequence", "--batch"}) {
        const auto at = std::find(words->begin(), words->end(), flag);
        if (at != words->end()) words->erase(at, at + 2);
      }
    }
    const Result by_set = plan(over + flags), by_config = plan(alone + Words{"--config", path} + flags);
    EXPECT_EQ(by_set.exit_code, 0) << by_set.out << by_set.err;
    EXPECT_EQ(by_config.exit_code, 0) << by_config.out << by_config.err;
    const json::Value one = json::parse(by_set.out, "plan"), other = json::parse(by_config.out, "plan");
    for (const char* key : {"stage", "precision", "stages", "advice"})
      EXPECT_EQ(*one.find(key), *other.find(key)) << key;
    EXPECT_EQ(*one.find("settings")->find("config"), *settings.find("config")) << "nothing is left to add";
  }
}

TEST(CliPlanSettings, AreNotGivenWhereNothingFits) {
  const Result result = plan({"--params", "100e9", "--world", "1", "--gpu-memory", "8GiB", "--host-memory", "8GiB"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, Not(HasSubstr("As settings")));
}

TEST(CliPlanSettings, TrainTakesThemAndHoldsWhatWasPlanned) {
  const testing::RunFolder folder;
  const Words of_model = {"--model", folder / "llama", "--sequence", "32"};
  const Result first = plan(of_model + Words{"--world", "2", "--host-memory", "3100KiB", "--set", "train_batch_size=8",
                                             "--set", "zero_optimization.stage=0", "--json"});
  EXPECT_EQ(first.exit_code, 3);
  const json::Value root = json::parse(first.out, "plan");
  const json::Value& config = *root.find("settings")->find("config");
  EXPECT_EQ(config.find("zero_optimization")->find("stage")->as_integer(), 1);
  const Result run = Command(Words{SHOAL_BINARY, "train", "--data", "synthetic:tokens=1450", "--config",
                                   folder.write("settings.json", json::write(config)), "--ranks", "2", "--threads", "1",
                                   "--steps", "1", "--no-report", "--no-final-save", "--out", folder / "run"} +
                             of_model)
                         .wait();
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json::Value& planned = root.find("stages")->as_array()[1];
  for (const auto& [held, name] :
       {std::pair("weights", "weights"), {"gradients", "gradients"}, {"states", "optimizer"}}) {
    EXPECT_EQ(testing::column(folder.read("run/events.jsonl"), held).at(1),
              std::to_string(planned.find(name)->as_integer()));
  }
}

TEST(CliPlanTime, SaysWhatAStepTakesOnACluster) {
  const Result result = plan({"--model", "llama-7b", "--time", "--cluster", "H100", "--hosts", "2", "--network", "400",
                              "--sequence", "2048", "--batch", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("llama-7b: 6,738,415,616 parameters, bf16, stage 3, 16 ranks\n"
                                    "2 hosts of 8 x H100, NVLink inside, 400 Gb/s between\n1 x 2048 tokens a rank\n"));
  for (const char* part : {"\nstep ", "\ncompute ", "\nexposed gathers ", "\nexposed reductions ", "\nupdate ",
                           "\noffload ", " tokens/s a GPU, ", "MFU ", "leave a host over the network"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const Result json = plan({"--model", "llama-7b", "--time", "--cluster", "H100", "--world", "4", "--json"});
  const json::Value root = json::parse(json.out, "plan");
  const json::Value& time = *root.find("time");
  EXPECT_EQ(time.find("world")->as_integer(), 4);
  EXPECT_EQ(time.find("cluster")->find("hosts")->as_integer(), 1);
  double parts = 0;
  for (const char* part : {"compute", "exposed_gathers", "exposed_reductions", "update", "offload"}) {
    parts += time.find(part)->as_number();
  }
  EXPECT_NEAR(parts, time.find("seconds")->as_number(), 1e-6);
  EXPECT_EQ(root.find("stages")->as_array().size(), 4u) << "the plan itself is there too";
}

TEST(CliPlanTime, AStepOfOurOwnIsAsMeasured) {
  const Result result = plan({"--model", "llama-3b", "--time", "--cluster", "H200", "--world", "1", "--sequence",
                              "2048", "--batch", "8", "--json"});
  const json::Value root = json::parse(result.out, "plan");
  EXPECT_NEAR(root.find("time")->find("seconds")->as_number(), 0.539, 0.05) << "bench/results/train-h200-2026-11-18.md";
}

TEST(CliPlanTime, MistakesOfTheClusterAreUsage) {
  const auto fails = [](std::vector<std::string> words, const char* with) {
    const Result result = plan(std::move(words));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(with));
  };
  fails({"--model", "llama-tiny", "--world", "2", "--time"}, "[--time] needs a cluster.");
  fails({"--model", "llama-tiny", "--time", "--cluster", "H10"}, "Did you mean H100?");
  fails({"--model", "llama-tiny", "--time", "--search", "--cluster", "H100"}, "[--search] and --time ask two things.");
  fails({"--params", "7e9", "--time", "--cluster", "H100"}, "need the model's shape");
  fails({"--model", "llama-tiny", "--time", "--cluster", "H100", "--hosts", "1", "--world", "9"},
        "[--world] 9 ranks are more than 1 hosts of 8 GPUs have.");
  fails({"--model", "llama-tiny", "--time", "--cluster", "H100", "--network", "fast"}, "[--network] \"fast\"");
  fails({"--model", "llama-tiny", "--time", "--cluster", "4090", "--inside", "NVLink"}, "not known to have NVLink");
  fails({"--model", "llama-tiny", "--search", "--cluster", "H100", "--global-batch", "7"}, "Give a multiple of 8.");
  fails({"--model", "llama-tiny", "--search", "--cluster", "H100", "--batch", "2"}, "[--batch] is what --search looks");
  fails({"--model", "llama-tiny", "--search", "--cluster", "H100", "--recompute", "full"}, "[--recompute] is what");
  fails({"--model", "llama-tiny", "--time", "--cluster", "H100", "--show", "3"}, "[--show] is for --search.");
  fails({"--model", "llama-tiny", "--cluster", "H100", "--network", "1"}, "[--network] is for --time and --search.");
  fails({"--model", "llama-tiny", "--world", "2", "--max-batch", "2"}, "[--max-batch] is for --search.");
  fails({"--model", "llama-tiny"}, "[--world] give the ranks in all, or --cluster with --hosts.");
  const auto file = std::filesystem::temp_directory_path() / ("shoal_cluster_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << R"({"gpu": {"like": "H100", "bf16_tflops": 0}, "gpus_per_hosts": 4})";
  fails({"--model", "llama-tiny", "--time", "--cluster", file.string()}, "Did you mean \"gpus_per_host\"?");
  std::ofstream(file) << R"({"gpu": {"like": "H100", "bf16_tflops": 0}})";
  fails({"--model", "llama-tiny", "--time", "--cluster", file.string()}, "bf16_tflops of H100 is 0 or not given");
  std::filesystem::remove(file);
}

// What the search prints as settings is a config that the plan takes, that fits, and that takes the time it said: with
// all that the user's own config says beside what is searched for.
TEST(CliPlanTime, SettingsOfTheSearchCanBePasted) {
  const auto file = std::filesystem::temp_directory_path() / ("shoal_found_" + std::to_string(getpid()) + ".json");
  const auto paste = [&](const std::vector<std::string>& settings, const std::vector<std::string>& memory) {
    const std::vector<std::string> cluster = {"--model", "llama-3b", "--cluster", "A100-40", "--hosts", "2", "--json"};
    std::vector<std::string> words = cluster;
    words.insert(words.end(), {"--search", "--sequence", "4096", "--global-batch", "64", "--max-batch", "4"});
    words.insert(words.end(), settings.begin(), settings.end());
    words.insert(words.end(), memory.begin(), memory.end());
    const Result result = plan(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json::Value root = json::parse(result.out, "plan");
    const json::Array& candidates = root.find("candidates")->as_array();
    ASSERT_GT(candidates.size(), 4u);
    for (const json::Value* each : {&candidates.front(), &candidates.back()}) {
      std::ofstream(file) << json::write(*each->find("settings"));
      words = cluster;
      words.insert(words.end(), {"--time", "--config", file.string()});
      words.insert(words.end(), memory.begin(), memory.end());
      std::istringstream flags(each->find("flags")->as_text());
      for (std::string word; flags >> word;) words.push_back(word);
      const Result again = plan(words);
      ASSERT_EQ(again.exit_code, 0) << again.err << again.out.substr(0, 2000) << json::write(*each);
      const json::Value planned = json::parse(again.out, "plan");
      EXPECT_EQ(planned.find("time")->find("sharding")->as_text(), each->find("sharding")->as_text());
      EXPECT_DOUBLE_EQ(planned.find("time")->find("seconds")->as_number(), each->find("seconds")->as_number())
          << json::write(*each);
    }
  };
  paste({}, {});
  paste({"--set", "optimizer.type=SGD"}, {});
  paste({"--set", "activation_checkpointing.cpu_checkpointing=true"}, {});
  paste({"--set", "zero_optimization.mics_shard_size=4", "--set", "train_batch_size=64"}, {});
  paste({"--set", "shoal.fold_group=8"}, {});
  paste({}, {"--gpu-memory", "24GiB"});
  std::filesystem::remove(file);
}

TEST(CliPlanTime, TheSearchKeepsToTheMemoryThatFlagsGive) {
  const auto largest = [](const std::vector<std::string>& memory) {
    std::vector<std::string> words = {"--model", "llama-3b", "--search", "--cluster", "H100", "--json"};
    words.insert(words.end(), memory.begin(), memory.end());
    const Result result = plan(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json::Value root = json::parse(result.out, "plan");
    int64_t most = 0;
    for (const json::Value& each : root.find("candidates")->as_array()) {
      most = std::max(most, each.find("device_bytes")->as_integer());
    }
    return most;
  };
  EXPECT_GT(largest({}), int64_t{24} << 30);
  EXPECT_LE(largest({"--gpu-memory", "24GiB"}), int64_t{24} << 30);
}

TEST(CliPlanTime, SearchSaysWhereNothingFits) {
  const Result result =
      plan({"--model", "llama-405b", "--search", "--cluster", "4090", "--sequence", "2048", "--max-batch", "1"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("Nothing fits"));
}

}  // namespace
}  // namespace shoal
