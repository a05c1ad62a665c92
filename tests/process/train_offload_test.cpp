// `shoal train` with states off the device: the same characters as without, also after a kill in the middle of a step,
// and nothing left on the disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "config_people_write.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
Words states_on(const std::string& tier, const RunFolder& folder, const std::string& more = "") {
  return {"--set",
          "zero_optimization.offload_optimizer={\"device\": \"" + tier + "\", \"nvme_path\": \"" + (folder / "disk") +
              "\"" + more + "}",
          "--set",
          "shoal.offload_chunk_size=2000",
          "--set",
          "bf16.enabled=true"};
}

const Words kSteps = {"--steps", "10", "--ranks", "2", "--no-final-save"};

size_t entries_in(const std::string& path) {
  if (!std::filesystem::exists(path)) return 0;
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator{}));
}

TEST(TrainOffload, EveryTierGivesTheCharactersOfTheResidentRunAndLeavesNothing) {
  const RunFolder folder;
  const Result whole = train(folder, "gpt2", "whole", kSteps + Words{"--set", "bf16.enabled=true"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  for (const std::string stage : {"1", "3"}) {
    for (const std::string tier : {"cpu", "nvme"}) {
      const Result result = train(
          folder, "gpt2", tier + stage,
          kSteps + states_on(tier, folder, ", \"ratio\": 0.7") + Words{"--set", "zero_optimization.stage=" + stage});
      ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
      EXPECT_THAT(result.out, HasSubstr(tier == "cpu" ? "states, host tier" : "states, disk tier"));
      expect_same_characters(folder, tier + stage, "whole");
    }
  }
  EXPECT_EQ(entries_in(folder / "disk"), 0u);
}

TEST(TrainOffload, PlacementAutoPutsOnDiskWhatTheHostsBudgetCannotHold) {
  const RunFolder folder;
  const Words resident = kSteps + Words{"--set", "bf16.enabled=true"};
  const auto placed = [&](const std::string& run, const std::string& budget, const std::string& path) {
    return train(
        folder, "gpt2", run,
        resident +
            Words{"--set",
                  "shoal={\"placement\": \"auto\", \"offload_chunk_size\": 2000, \"host_budget\": " + budget + "}",
                  "--set", "zero_optimization.offload_optimizer={\"nvme_path\": \"" + path + "\"}"});
  };
  // A rank takes 1.30 MiB, and 1.19 with all its states on disk.
  const std::string kBudget = std::to_string(2 * (5 << 18));
  const Result whole = placed("whole", "0", "");
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("placement auto: everything is in memory; "));
  const Result disk = placed("spilled", kBudget, folder / "disk");
  ASSERT_EQ(disk.exit_code, 0) << disk.out << disk.err;
  EXPECT_THAT(disk.out, HasSubstr("placement auto: offload_optimizer to nvme, ratio 0."));
  EXPECT_THAT(disk.out, HasSubstr("states, disk tier"));
  expect_same_characters(folder, "spilled", "whole");
  EXPECT_EQ(entries_in(folder / "disk"), 0u);
  const Result none = placed("none", kBudget, "");
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("offload_optimizer.nvme_path for the disk"));
}

constexpr size_t kPage = 4096;
using Page = std::array<char, kPage>;

// The file of a run under the folder "disk", opened as a stranger would.
class StrangersFile {
 public:
  explicit StrangersFile(const RunFolder& folder) {
    uintmax_t most = 0;
    std::string path;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "disk")) {
      if (!entry.is_regular_file() || entry.file_size() <= most) continue;
      most = entry.file_size();
      path = entry.path();
    }
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  ~StrangersFile() { ::close(fd_); }
  StrangersFile(const StrangersFile&) = delete;
  StrangersFile& operator=(const StrangersFile&) = delete;

  Page read() const {
    Page page;
    EXPECT_EQ(::pread(fd_, page.data(), kPage, 0), static_cast<ssize_t>(kPage));
    return page;
  }
  void write(const Page& page) const { EXPECT_EQ(::pwrite(fd_, page.data(), kPage, 0), static_cast<ssize_t>(kPage)); }

 private:
  int fd_ = -1;
};

bool has_ended(const Command& run) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(run.pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

// Damage that lands between a read and the write after it is written over, and does no harm: so it comes again and
// again.
Result damaged(const RunFolder& folder, const std::string& out,
               const std::function<void(const StrangersFile&)>& damage) {
  const Words words = {"--steps", "1000000", "--no-final-save"};
  Command run(train_words(folder, "gpt2", out, words + states_on("nvme", folder)));
  EXPECT_TRUE(run.wait_for_output("step 3/")) << run.out() << run.err();
  {
    const StrangersFile file(folder);
    for (int i = 0; i < 60000 && !has_ended(run); ++i) {
      damage(file);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (!has_ended(run)) run.kill(SIGKILL);
  return run.wait();
}

// Without a key that asks for it.
TEST(TrainOffload, AFlippedBitOnDiskEndsTheRun) {
  const RunFolder folder;
  const Result result = damaged(folder, "run", [](const StrangersFile& file) {
    Page page = file.read();
    page[1001] ^= 4;
    file.write(page);
  });
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("the page at 0 (block 0) is not what was written there"));
}

// What the disk has of the page is older than what was written last.
TEST(TrainOffload, AWriteThatWasLostEndsTheRun) {
  const RunFolder folder;
  std::optional<Page> old;
  const Result result = damaged(folder, "run", [&](const StrangersFile& file) {
    if (!old) old = file.read();
    if (file.read() != *old) file.write(*old);
  });
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("is not what was written there"));
}

// Which parameters are sharded says in what order the norm is summed, at every stage.
const Words kAllSharded = {"--set", "bf16.enabled=true", "--set",
                           "zero_optimization.stage3_param_persistence_threshold=0"};

Words weights_on_disk(const RunFolder& folder) {
  return {"--set",
          "zero_optimization.stage=3",
          "--set",
          "zero_optimization.stage3_param_persistence_threshold=0",
          "--set",
          "zero_optimization.offload_param={\"device\": \"nvme\", \"nvme_path\": \"" + (folder / "disk") +
              "\", \"buffer_count\": 2, \"max_in_cpu\": 5000}"};
}

TEST(TrainOffload, WeightsOnDiskGiveTheCharactersOfTheResidentRunAndLeaveNothing) {
  const RunFolder folder;
  const Result whole = train(folder, "llama", "whole", kSteps + kAllSharded);
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  for (const std::string tier : {"none", "nvme"}) {
    const Result result = train(folder, "llama", tier, kSteps + states_on(tier, folder) + weights_on_disk(folder));
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("weights, disk tier"));
    EXPECT_THAT(result.out, HasSubstr("weights, host tier"));
    EXPECT_THAT(result.err, HasSubstr("shoal: weights on disk: " + (folder / "disk")));
    expect_same_characters(folder, tier, "whole");
  }
  EXPECT_EQ(entries_in(folder / "disk"), 0u);
}

TEST(TrainOffload, AKilledRunGoesOnAndItsFolderIsTakenAway) {
  const RunFolder folder;
  const Words on_disk = {"--steps", "10", "--ranks", "2", "--save-every", "2"};
  const Result whole = train(folder, "gpt2", "whole", kSteps + kAllSharded);
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  {
    Command killed(train_words(folder, "gpt2", "run", on_disk + states_on("nvme", folder) + weights_on_disk(folder)));
    ASSERT_TRUE(killed.wait_for_output("step-00000004")) << killed.out() << killed.err();
    killed.kill(SIGKILL);
  }
  const Result resumed = train(
      folder, "gpt2", "run", on_disk + states_on("nvme", folder) + weights_on_disk(folder) + Words{"--resume", "auto"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.out << resumed.err;
  expect_same_characters(folder, "run", "whole");
  EXPECT_EQ(entries_in(folder / "disk"), 0u) << "what the killed run left is still there";
}

TEST(TrainOffload, TwoRunsShareAPathWithoutTouchingEachOther) {
  const RunFolder folder;
  const Result whole = train(folder, "gpt2", "whole", kSteps + Words{"--set", "bf16.enabled=true"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  Command first(train_words(folder, "gpt2", "first", kSteps + states_on("nvme", folder)));
  Command second(train_words(folder, "gpt2", "second", kSteps + states_on("nvme", folder)));
  const Result one = first.wait(), two = second.wait();
  ASSERT_EQ(one.exit_code, 0) << one.out << one.err;
  ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
  expect_same_characters(folder, "first", "whole");
  expect_same_characters(folder, "second", "whole");
  EXPECT_EQ(entries_in(folder / "disk"), 0u);
}

// Rank 0's, in both files. The trace ends with the run.
TEST(TrainOffload, ATraceShowsTheWaitsThatTheStepsCount) {
  const RunFolder folder;
  const Result result =
      train(folder, "gpt2", "run", kSteps + states_on("nvme", folder) + Words{"--trace-steps", "3-500"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  std::map<std::string, double> traced_ms = traced_waits(folder, "run");
  const std::string metrics = folder.read("run/metrics.jsonl");
  const auto counted_ms = [&](const char* key) {
    const std::vector<double> of_steps = numbers(column(metrics, key));
    return std::accumulate(of_steps.begin() + 2, of_steps.end(), 0.0);
  };
  const double comm_ms = counted_ms("wait_comm_ms"), disk_ms = counted_ms("wait_disk_ms");
  EXPECT_GT(disk_ms, 0);
  EXPECT_NEAR(traced_ms["disk"], disk_ms, 0.01 * disk_ms);
  EXPECT_GT(comm_ms, 0);
  EXPECT_LE(traced_ms["ranks"], 1.01 * comm_ms);
  EXPECT_GE(traced_ms["ranks"], 0.3 * comm_ms) << "a step counts the whole call in which ranks share their losses";
  EXPECT_EQ(traced_ms.size(), 2u);
  EXPECT_THAT(result.out, ::testing::ContainsRegex("trace\\.json; waits: disk [0-9.]+ ms, ranks [0-9.]+ ms"));
}

TEST(TrainOffload, TheConfigPeopleWriteRunsUnchanged) {
  RunFolder folder;
  folder.write("ds_config.json", kConfigPeopleWrite);
  const Result result =
      Command({SHOAL_BINARY, "train", "--config", folder / "ds_config.json", "--model", folder / "llama", "--data",
               "synthetic:tokens=20000", "--sequence", "32", "--threads", "1", "--ranks", "2", "--steps", "2"})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("states, host tier"));
}

TEST(TrainOffload, APathThatCannotBeUsedIsAnErrorBeforeTheFirstStep) {
  const RunFolder folder;
  const Result result = train(folder, "gpt2", "run",
                              kSteps + Words{"--set",
                                             "zero_optimization.offload_optimizer={\"device\": \"nvme\", "
                                             "\"nvme_path\": \"/proc/no place\"}"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("/proc/no place"));
  EXPECT_EQ(result.out.find("step 1/"), std::string::npos);
}

}  // namespace
}  // namespace shoal::testing
