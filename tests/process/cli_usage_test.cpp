// What the command says about itself, and how it answers mistakes: one line, the nearest word, exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/command.h"
#include "temp_folder.h"

namespace shoal {
namespace {

using testing::Command;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Result;
using ::testing::StartsWith;

Result shoal(std::vector<std::string> words, const testing::CommandOptions& options = {}) {
  words.insert(words.begin(), SHOAL_BINARY);
  return Command(words, options).wait();
}

TEST(Cli, SaysItsVersionAndThatOfTorch) {
  const Result result = shoal({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("shoal "));
  EXPECT_THAT(result.out, ContainsRegex("\\(torch 2\\.[0-9]+\\."));
}

TEST(Cli, EveryVerbsHelpEndsWithAnExample) {
  const Result help = shoal({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Example:\n"));
  for (const char* verb : {"train", "compare", "launch", "plan", "tokenize"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("  ") + verb + " "));
    const Result result = shoal({verb, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr(std::string("Example:\n  shoal ") + verb + " ")) << verb;
  }
}

TEST(Cli, DoctorMeasuresRanks) {
  const testing::TempFolder folder;
  const Result result = shoal({"doctor", "--ranks", "3", "--device", "cpu", "--disk", folder.path(), "--json"});
  EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 3)) << result.err;  // 3: the machine has other work for one of them
  EXPECT_THAT(result.out, ContainsRegex("\"host\": \"[^\"]+\""));
  EXPECT_THAT(result.out, HasSubstr("\"rank\": 1"));
  EXPECT_THAT(result.out, HasSubstr("\"odd\": ["));
  EXPECT_THAT(result.out, ContainsRegex("\"link_per_s\": [0-9]"));
  EXPECT_THAT(result.out, ContainsRegex("\"disk_read_per_s\": [0-9]"));
  EXPECT_THAT(result.out, HasSubstr("\"network_per_s\": null")) << "there is one host";
}

struct Mistake {
  std::vector<std::string> words;
  std::string answer;
};

TEST(Cli, AMistakeIsAnsweredWithTheNearestWordAndCode2) {
  const std::vector<Mistake> mistakes = {
      {{"lanch", "-n", "2"}, "shoal: lanch is not a verb of shoal. Did you mean launch?\nSee shoal --help.\n"},
      {{"plan", "--parms", "7e9"},
       "shoal plan: --parms is not a flag of plan. Did you mean --params?\nSee shoal plan --help.\n"},
      {{"plan", "--wrld=8", "--params", "7e9"},
       "shoal plan: --wrld is not a flag of plan. Did you mean --world?\nSee shoal plan --help.\n"},
      {{"launch", "-n", "2"}, "shoal launch: program is required\nSee shoal launch --help.\n"},
      {{"launch", "-n", "none", "--", "true"}, "shoal launch: "},
      {{"launch", "-n", "100000", "--", "true"}, "shoal launch: --ranks: Value 100000 not in range"},
      {{"train", "--ranks", "100000"}, "shoal train: --ranks: Value 100000 not in range"},
      {{"doctor", "--ranks", "1"}, "shoal: [--ranks] one rank has no others to be compared with. Give 2 or more.\n"},
      {{"doctor", "--disk", "."}, "shoal doctor: --disk requires --ranks"},
      {{"doctor", "--ranks", "2", "--device", "gpo"}, "shoal: [--device] gpo is not a device."},
      {{}, "shoal: A subcommand is required\nSee shoal --help.\n"},
      {{"plan", "--world", "8"}, "shoal: [--model] give either a model or --params, the number of parameters.\n"},
      {{"plan", "--params", "7e9", "--world", "2", "--ranks-per-host", "8"},
       "shoal: [--ranks-per-host] 8 ranks on a host are more than --world, 2 in all. Give 2 or fewer.\n"},
      {{"train", "--model", "llama-tiny", "--data", "synthetic", "--steps", "1", "--out", ""},
       "shoal train: --out: is empty. Give a value\nSee shoal train --help.\n"},
      {{"train", "--model", "llama-tiny", "--data", "synthetic", "--steps", "99999999999999999999"},
       "shoal train: --steps: Value 99999999999999999999 not in range"},
      {{"plan", "--params", "7e9", "--world", "8", "--batch", "4"},
       "shoal: [--params] with a number alone no activations are counted"},
      {{"plan", "--params", "many", "--world", "8"}, "shoal: [--params] \"many\" is not an amount."},
      {{"plan", "--model", "lama-7b", "--world", "8"}, "shoal: [model lama-7b] "},
      {{"plan", "--params", "7e9", "--world", "8", "--set", "zero_optimization.stage=4"}, "shoal: [config] 1 mistake:"},
      {{"plan", "--params", "7e9", "--world", "8", "--config", "/no/such/file.json"},
       "shoal: [config /no/such/file.json]"},
  };
  for (const Mistake& mistake : mistakes) {
    const Result result = shoal(mistake.words);
    EXPECT_EQ(result.exit_code, 2) << mistake.answer;
    EXPECT_THAT(result.err, StartsWith(mistake.answer));
    EXPECT_EQ(result.out, "");
  }
}

// A disk that is full behind `>`.
TEST(Cli, OutputThatIsLostIsAFailure) {
  const Result result =
      Command({"sh", "-c", "exec \"$0\" plan --params 7e9 --world 8 > /dev/full", SHOAL_BINARY}).wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, StartsWith("shoal: [standard output] could not be written: No space left on device."));
}

TEST(Cli, LaunchPassesEveryWordOnAndTheExitCodeBack) {
  const Result result = shoal({"launch", "-n", "1", "--no-prefix", "--", "sh", "-c", "printf '%s;' \"$@\"; exit 5",
                               "sh", "-n", "--", "plan", "--help", "a b"});
  EXPECT_EQ(result.out, "-n;--;plan;--help;a b;\n");
  EXPECT_EQ(result.exit_code, 5);
}

TEST(Cli, LaunchOfAProgramThatIsNotThereFails) {
  const Result result = shoal({"launch", "-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, StartsWith("shoal: [launch] /no/such/program cannot be started: No such file or directory."));
}

}  // namespace
}  // namespace shoal
