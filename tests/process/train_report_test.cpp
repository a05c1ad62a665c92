// What a run leaves for its report, and the report that it leaves: on one rank, on two, when it goes on at another
// number, when it fails. What a browser makes of the page: tests/python/report_test.py.
#include <gmock/gmock.h>

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json::Value report(const RunFolder& folder, const std::string& run) {
  const Result result = Command({shoal_command(), "report", folder / run, "--json"}).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.exit_code == 0 ? json::parse(result.out, "report").find("runs")->as_array().at(0) : json::Value();
}

std::vector<std::string> events_of(const RunFolder& folder, const std::string& run) {
  return column(folder.read(run + "/events.jsonl"), "event");
}

TEST(TrainReport, ARunAtTwoRanksLeavesOneThatSaysWhereItsTimeWent) {
  const RunFolder folder;
  const Result result = train(folder, "llama", "run", {"--steps", "12", "--ranks", "2", "--save-every", "6"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("report     " + (folder / "run/report.html")));
  EXPECT_THAT(folder.read("run/report.html"), HasSubstr("</html>"));
  const json::Value run = report(folder, "run");
  double parts = 0;
  for (const json::Value& part : run.find("parts")->as_array()) {
    if (part.find("name")->as_text() != "save") parts += part.find("ms")->as_number();
  }
  EXPECT_NEAR(parts, run.find("summary")->find("median_step_ms")->as_number(), 0.01 * parts);
  EXPECT_EQ(run.find("ranks")->as_array().size(), 2u);
  const double overlap = run.find("summary")->find("overlap")->as_number();
  EXPECT_GE(overlap, 0);
  EXPECT_LE(overlap, 1);
  EXPECT_EQ(run.find("state")->as_text(), "done");
  const json::Value& memory = *run.find("memory");
  EXPECT_EQ(memory.find("held")->find("states")->as_integer(), memory.find("planned")->find("states")->as_integer());
}

// The columns by cause add up, and the time of a step holds all of them but what is waited for twice at once.
TEST(TrainReport, WaitsByCauseAddUp) {
  const RunFolder folder;
  ASSERT_EQ(train(folder, "llama", "run", {"--steps", "6", "--ranks", "2", "--no-report", "--no-final-save"}).exit_code,
            0);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/report.html"));
  const std::string metrics = folder.read("run/metrics.jsonl");
  const auto of = [&](const char* key) { return numbers(column(metrics, key)); };
  for (size_t step = 0; step < 6; ++step) {
    const double sum = of("wait_weights_ms")[step] + of("wait_gradients_ms")[step] + of("wait_losses_ms")[step];
    EXPECT_NEAR(of("wait_comm_ms")[step], sum, 1e-6);
    EXPECT_GT(of("carried_ms")[step], 0);
    EXPECT_LT(sum, of("step_ms")[step]);
  }
}

TEST(TrainReport, TellsOfARunThatWentOnAtAnotherNumberOfRanks) {
  const RunFolder folder;
  ASSERT_EQ(train(folder, "llama", "run", {"--steps", "8", "--ranks", "2", "--stop-at", "4"}).exit_code, 0);
  ASSERT_EQ(train(folder, "llama", "run", {"--steps", "8", "--resume", "auto"}).exit_code, 0);
  EXPECT_THAT(events_of(folder, "run"), ElementsAre("\"start\"", "\"memory\"", "\"save\"", "\"end\"", "\"resume\"",
                                                    "\"memory\"", "\"save\"", "\"end\""));
  EXPECT_EQ(column(folder.read("run/events.jsonl"), "ranks").at(4), "1");
  EXPECT_EQ(report(folder, "run").find("ranks")->as_array().size(), 1u);
}

// The process of a rank, by the folder that stands in its command line; -1: none.
pid_t process_of(const RunFolder& folder, int rank) {
  const auto text_of = [](const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return '\0' + text.str();
  };
  const std::string wanted = '\0' + ("RANK=" + std::to_string(rank)) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text_of(entry.path() / "cmdline").find(folder / "run") == std::string::npos) continue;
    if (text_of(entry.path() / "environ").find(wanted) != std::string::npos) return static_cast<pid_t>(std::stol(name));
  }
  return -1;
}

// Seconds that its threads have computed. One that waits for others takes none.
double computed(pid_t process) {
  clockid_t clock;
  timespec time = {};
  if (::clock_getcpuclockid(process, &clock) == 0) ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(TrainReport, NamesTheRankThatOthersWaitFor) {
  const RunFolder folder;
  Command run(train_words(folder, "llama", "run", {"--steps", "1000000", "--ranks", "2"}));
  ASSERT_TRUE(run.wait_for_output("step 3/")) << run.err();
  const pid_t slow = process_of(folder, 1);
  ASSERT_GT(slow, 0);
  const std::string said = "| ranks wait for rank 1";
  double before = computed(slow);
  // For each millisecond that it computes it is stopped for 20: stopped while it waits, it would only wait longer.
  for (int i = 0; i < 60000 && run.out().find(said) == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (computed(slow) - before < 0.001) continue;
    ::kill(slow, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(slow, SIGCONT);
    before = computed(slow);
  }
  EXPECT_THAT(run.out(), HasSubstr(said)) << run.err();
  EXPECT_THAT(column(folder.read("run/metrics.jsonl"), "slow_rank"), ::testing::Contains("1"));
}

TEST(TrainReport, ARunThatFailsLeavesOneToo) {
  const RunFolder folder;
  Words words = train_words(folder, "llama", "run", {"--steps", "40", "--max-nonfinite", "3", "--ranks", "2"});
  *(std::find(words.begin(), words.end(), "--lr") + 1) = "1e30";
  const Result result = Command(words).wait();
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_EQ(events_of(folder, "run").back(), "\"failed\"");
  EXPECT_THAT(folder.read("run/report.html"), HasSubstr("</html>"));
  EXPECT_EQ(report(folder, "run").find("state")->as_text(), "failed");
}

TEST(TrainReport, EveryRankThatWasAskedLeavesATrace) {
  const RunFolder folder;
  const Words three = {"--steps",       "4",  "--ranks", "3", "--set", "train_batch_size=6", "--no-final-save",
                       "--trace-steps", "2-3"};
  ASSERT_EQ(train(folder, "llama", "run", three + Words{"--trace-ranks", "0,2"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/trace.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/trace-rank-1.json"));
  const std::string second = folder.read("run/trace-rank-2.json");
  for (const char* range : {"\"step 2\"", "\"step 3\"", "\"forward\"", "\"backward\"", "\"update\"", "\"data\""}) {
    EXPECT_THAT(second, HasSubstr(range));
  }
  EXPECT_THAT(second, Not(HasSubstr("\"step 4\"")));
  EXPECT_EQ(report(folder, "run").find("traces")->as_array().size(), 2u);
  const Result wrong = train(folder, "llama", "wrong", three + Words{"--trace-ranks", "3"});
  EXPECT_EQ(wrong.exit_code, 2) << wrong.out;
  EXPECT_THAT(wrong.err, HasSubstr("\"3\" names rank 3, and there are 3."));
}

TEST(TrainReport, WhatIsNoRunIsWrongUsage) {
  const RunFolder folder;
  const Result result = Command({shoal_command(), "report", folder / "llama"}).wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("holds no metrics.jsonl and no run.json"));
  const Result both = Command({shoal_command(), "report", folder / "llama", "--live", "--json"}).wait();
  EXPECT_EQ(both.exit_code, 2);
}

}  // namespace
}  // namespace shoal::testing
