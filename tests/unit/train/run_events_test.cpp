#include "train/run_events.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using testing::TempFolder;

std::vector<json::Value> lines_in(const TempFolder& folder, const std::string& name) {
  std::vector<json::Value> lines;
  std::stringstream text(folder.read(name));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line, name));
  return lines;
}

TEST(EventLine, SaysWhatWhenAndAtWhichStep) {
  const json::Value line = json::parse(event_line("save", 5, {{"ms", 1.5}}), "line");
  EXPECT_EQ(line.find("event")->as_text(), "save");
  EXPECT_EQ(line.find("step")->as_integer(), 5);
  EXPECT_GT(line.find("time")->as_number(), 1.7e9);
  EXPECT_EQ(line.find("ms")->as_number(), 1.5);
}

TEST(RunEvents, EventsStayWhenARunGoesOnAndRanksOfStepsTakenAgainGo) {
  const TempFolder folder;
  const std::vector<RankTimes> ranks = {{0.01, 0, 0, 0}, {0.03, 0, 0, 0}};
  {
    RunEvents log(folder.path(), 0);
    log.add("start", 0);
    for (int64_t step = 1; step <= 25; ++step) log.add_ranks(step, ranks);
    log.flush_ranks();
  }
  EXPECT_EQ(lines_in(folder, "ranks.jsonl").size(), 3u);
  {
    RunEvents log(folder.path(), 20);
    log.add("resume", 20);
  }
  EXPECT_EQ(lines_in(folder, "events.jsonl").size(), 2u);
  EXPECT_EQ(lines_in(folder, "ranks.jsonl").size(), 2u);
}

TEST(RunEvents, ALineOfRanksHasTheMeansOfItsSteps) {
  const TempFolder folder;
  RunEvents log(folder.path(), 0);
  for (int64_t step = 1; step <= 12; ++step) {
    const auto s = static_cast<double>(step);
    log.add_ranks(step, {{0.001 * s, 0.002 * s, 0, 0.003 * s}, {0.005 * s, 0, 0.004 * s, 0}});
  }
  log.flush_ranks();
  log.flush_ranks();
  const std::vector<json::Value> lines = lines_in(folder, "ranks.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("step")->as_integer(), 10);
  EXPECT_EQ(lines[0].find("steps")->as_integer(), 10);
  EXPECT_EQ(lines[1].find("steps")->as_integer(), 2);
  for (const json::Value& line : lines) {
    const auto at = [&](const char* key, size_t rank) { return line.find(key)->as_array().at(rank).as_number(); };
    EXPECT_NEAR(at("wait_comm_ms", 0), 1, 1e-9);
    EXPECT_NEAR(at("wait_comm_ms", 1), 5, 1e-9);
    EXPECT_NEAR(at("wait_host_ms", 0), 2, 1e-9);
    EXPECT_NEAR(at("wait_disk_ms", 1), 4, 1e-9);
    EXPECT_NEAR(at("data_ms", 0), 3, 1e-9);
  }
}

TEST(RunEvents, WithoutAFolderWritesNothing) {
  RunEvents log;
  log.add("start", 0);
  log.add_ranks(10, {{}});
  log.flush_ranks();
}

TEST(RunEvents, ADiskThatIsFullEndsNoRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  const TempFolder folder;
  for (const char* name : {"events.jsonl", "ranks.jsonl"}) std::filesystem::create_symlink("/dev/full", folder / name);
  RunEvents log(folder.path(), 0);
  log.add("start", 0);
  log.add_ranks(10, {{}});
}

json::Value line_of(const EventFacts& facts) { return json::parse(event_line("x", 1, facts), "line"); }

TEST(Members, OfMemoryHaveEveryKindOfBoth) {
  MemoryReport memory;
  memory.planned.weights = 3;
  memory.held.disk_states = 5;
  const json::Value line = line_of(memory_members(memory));
  EXPECT_EQ(line.find("planned")->find("weights")->as_integer(), 3);
  EXPECT_EQ(line.find("held")->find("disk_states")->as_integer(), 5);
  EXPECT_EQ(line.find("held")->as_object().size(), 14u);
}

TEST(Members, OfAStartSayTheRanks) {
  const Config config = Config::from_text(R"({"train_batch_size": 8})");
  const json::Value line = line_of(start_members(config, {3, 2, "gloo"}, "there/step-1"));
  EXPECT_EQ(line.find("ranks")->as_integer(), 2);
  EXPECT_EQ(line.find("threads")->as_integer(), 3);
  EXPECT_EQ(line.find("checkpoint")->as_text(), "there/step-1");
  EXPECT_EQ(line_of(start_members(config, {3, 2, "gloo"}, "")).find("checkpoint"), nullptr);
}

}  // namespace
}  // namespace shoal::train
