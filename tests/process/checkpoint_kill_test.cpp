// Runs that are killed while they save, again and again, and a disk that is full: what was saved before always stays,
// and each resume goes on with the bits of a run that was never stopped.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>

#include "base/text.h"
#include "checkpoint/exchange.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/verify.h"
#include "process/spawn.h"
#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "test_size.h"
#include "training/outcome.h"
#include "training/state_bits.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

RunOptions run_options() {
  RunOptions options;
  options.stage = 3;
  options.precision = Precision::bf16;
  return options;
}

// Kills this process after a while, wherever it is by then.
class DeathWatch {
 public:
  explicit DeathWatch(double seconds) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    timer_create(CLOCK_MONOTONIC, &event, &timer_);
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(seconds);
    when.it_value.tv_nsec = 1 + static_cast<long>((seconds - std::floor(seconds)) * 999'999'000);
    timer_settime(timer_, 0, &when, nullptr);
  }
  ~DeathWatch() { timer_delete(timer_); }
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  timer_t timer_{};
};

// A save behind training, and steps until it is complete: the hash of each state that was reached meanwhile is told.
int save_and_train_on(CheckpointSaver& saver, Trainee& trainee, const std::string& folder, int step,
                      const std::function<void(const char*, int)>& tell) {
  saver.save_later({folder, step, 2, {}});
  do {
    trainee.train(step, step + 1, run_options());
    tell("reached", ++step);
  } while (!saver.poll_saved());
  return step;
}

// Takes up what is there, then trains and saves for ever. The rank that TEST_VICTIM names dies at a random moment of a
// save; the first save shows how long one takes.
int train_until_killed() {
  auto world = make_process_group();
  const std::string folder = setting("TEST_FOLDER");
  const bool victim = setting("TEST_VICTIM") == std::to_string(world->rank());
  std::mt19937 random(static_cast<unsigned>(std::stoul(setting("TEST_SEED"))));
  Trainee trainee(*world, config_of(run_options(), world->size()));
  const auto tell = [&](const char* word, int step) {
    const uint64_t hash = hash_text(state_bits(*trainee.engine, *world));
    if (world->rank() == 0) say(fmt::format("{} {} {:016x}", word, step, hash));
  };
  int step = 0;
  const bool fresh = checkpoint::broadcast_text(*world, {"find", "latest"}, find_latest_checkpoint(folder)).empty();
  if (!fresh) {
    step = static_cast<int>(load_checkpoint(*trainee.engine, *world, folder).step);
    tell("resumed", step);
  }
  double save_seconds = 0;
  CheckpointSaver saver(*trainee.engine, *world);
  const bool behind = setting("TEST_BEHIND") == "1";
  for (;;) {
    trainee.train(step, step + 1, run_options());
    ++step;
    tell("saving", step);
    const auto begin = Clock::now();
    std::unique_ptr<DeathWatch> watch;
    if (victim && save_seconds > 0) {
      watch = std::make_unique<DeathWatch>(std::uniform_real_distribution<double>(0, save_seconds)(random));
    }
    const int saved = step;
    const uint64_t hash = hash_text(state_bits(*trainee.engine, *world));
    if (behind) {
      step = save_and_train_on(saver, trainee, folder, step, tell);
    } else {
      save_checkpoint(*trainee.engine, *world, {folder, step, 2, {}});
    }
    watch.reset();
    save_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (world->rank() == 0) say(fmt::format("saved {} {:016x}", saved, hash));
  }
}

int train_to_the_end() {
  auto world = make_process_group();
  Trainee trainee(*world, config_of(run_options(), world->size()));
  const int steps = std::stoi(setting("TEST_STEPS"));
  for (int step = 0; step < steps; ++step) {
    trainee.train(step, step + 1, run_options());
    const uint64_t hash = hash_text(state_bits(*trainee.engine, *world));
    if (world->rank() == 0) say(fmt::format("reached {} {:016x}", step + 1, hash));
  }
  return 0;
}

struct Line {
  std::string word;
  int step = 0;
  std::string hash;
};
std::vector<Line> lines_of(const std::string& output) {
  static const std::regex kForm("(resumed|saving|saved|reached) ([0-9]+) ([0-9a-f]{16})");
  std::vector<Line> lines;
  for (const std::string& line : lines_said(output)) {
    std::smatch parts;
    if (std::regex_match(line, parts, kForm)) lines.push_back({parts[1], std::stoi(parts[2]), parts[3]});
  }
  return lines;
}

TEST(LinesOfARun, AreTheRunsOwn) {
  // A warning of torch's has a word, a number and 16 characters too, and its pieces come in writes of their own.
  const std::string warning = "[W1118 03:53:00.634975263 LinearAlgebra.cpp:1531] Warning: mkldnn_matmul failed\n";
  EXPECT_THAT(lines_of(warning + "saved 3 0123456789abcdef\n"), IsEmpty());
  const std::vector<Line> lines = lines_of("[W1118 \n[test] saved 3 0123456789abcdef\n03:53:00.634975263 Line\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].step, 3);
  EXPECT_THAT(lines_of("\n[test] saving 4 0123"), IsEmpty());  // killed while it wrote
}

void expect_kills_to_do_no_harm(int world, int kills, bool behind = false) {
  const TempFolder temp;
  std::map<int, std::string> hashes;  // of each step that was reached
  int saved = 0;                      // the last step whose save returned
  for (int kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE(fmt::format("kill {}", kill));
    Ranks ranks({.world = world,
                 .mode = "train_until_killed",
                 .env = {{"TEST_FOLDER", temp.path()},
                         {"TEST_SEED", std::to_string(kill)},
                         {"TEST_BEHIND", behind ? "1" : "0"},
                         {"TEST_VICTIM", std::to_string(kill % world)}},
                 .limit = 60s});
    const std::vector<Outcome> outcomes = ranks.wait();
    const Outcome& victim = outcomes[static_cast<size_t>(kill % world)];
    ASSERT_EQ(victim.signal, SIGKILL) << victim.output;
    bool resumed = saved == 0;
    for (const Line& line : lines_of(outcomes[0].output)) {
      const auto [known, is_new] = hashes.emplace(line.step, line.hash);
      EXPECT_EQ(line.hash, known->second) << line.word << " " << line.step;
      if (line.word == "resumed") {
        resumed = true;
        EXPECT_GE(line.step, saved);
      }
      if (line.word == "saved") saved = line.step;
    }
    ASSERT_TRUE(resumed) << outcomes[0].output;
    for (const std::string& name : checkpoint::steps_in(temp.path())) {
      EXPECT_THAT(checkpoint::verify(temp / name), IsEmpty()) << name;
    }
  }
  ASSERT_GE(saved, kills);
  // The run that was never stopped went through the same states.
  const auto outcomes = Ranks({.world = world,
                               .mode = "train_to_the_end",
                               .env = {{"TEST_STEPS", std::to_string(hashes.rbegin()->first)}},
                               .limit = 120s})
                            .wait();
  std::map<int, std::string> expected;
  for (const Line& line : lines_of(outcomes[0].output)) expected[line.step] = line.hash;
  EXPECT_EQ(hashes, expected);
}

TEST(KilledSave, FiftyKillsOfOneRankLoseNothing) { expect_kills_to_do_no_harm(1, tests_are_small() ? 5 : 50); }

TEST(KilledSave, KillsOfEitherOfTwoRanksLoseNothing) { expect_kills_to_do_no_harm(2, tests_are_small() ? 2 : 8); }

TEST(KilledSave, KillsWhileASaveIsUnderWayBehindTrainingLoseNothing) {
  expect_kills_to_do_no_harm(1, tests_are_small() ? 2 : 8, /*behind=*/true);
  expect_kills_to_do_no_harm(2, tests_are_small() ? 2 : 6, /*behind=*/true);
}

// A save that cannot be written, and one that can again, on two ranks.
int save_where_space_runs_out(const std::string& folder, const std::string& cause, const std::function<void()>& run_out,
                              const std::function<void()>& free) {
  const std::function<int(Group&)> play = [&](Group& world) {
    Trainee trainee(world, config_of(run_options(), 2));
    const auto barrier = [&] { world.barrier({"wait", "test"}).wait(); };
    trainee.train(0, 1, run_options());
    save_checkpoint(*trainee.engine, world, {folder, 1, 1, {}});
    trainee.train(1, 2, run_options());
    barrier();
    if (world.rank() == 0) run_out();
    barrier();
    CheckpointSaver saver(*trainee.engine, world);
    EXPECT_THAT(message_of([&] {
                  saver.save_later({folder, 2, 1, {}});
                  saver.wait_saved();
                }),
                HasSubstr(cause));
    const std::string said = message_of([&] { save_checkpoint(*trainee.engine, world, {folder, 2, 1, {}}); });
    EXPECT_THAT(said, HasSubstr("[checkpoint save] rank "));
    EXPECT_THAT(said, HasSubstr("rank-0000"));
    EXPECT_THAT(said, HasSubstr(cause));
    barrier();
    if (world.rank() == 0) {
      EXPECT_THAT(names_of(folder), ElementsAre("latest", "step-00000001"));
      EXPECT_THAT(checkpoint::verify(folder + "/step-00000001"), IsEmpty());
      free();
    }
    barrier();
    trainee.train(2, 3, run_options());  // training goes on
    EXPECT_EQ(save_checkpoint(*trainee.engine, world, {folder, 3, 1, {}}), folder + "/step-00000003");
    return 0;
  };
  on_threads<int>(2, play);
  EXPECT_THAT(names_of(folder), ElementsAre("latest", "step-00000003"));
  EXPECT_THAT(checkpoint::verify(folder + "/step-00000003"), IsEmpty());
  return 0;
}

int fill_the_disk() {
  const std::string mount = setting("TEST_FOLDER");
  const std::string ballast = mount + "/ballast";
  return save_where_space_runs_out(
      mount + "/run", "No space left on device (ENOSPC)",
      [&] {
        std::ofstream file(ballast, std::ios::binary);
        const std::string block(4096, 'x');
        while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
        }
      },
      [&] { std::filesystem::remove(ballast); });
}

int limit_file_sizes() {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const TempFolder temp;
  return save_where_space_runs_out(
      temp.path(), "File too large (EFBIG)",
      [&] {
        const rlimit small{10'000, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
      },
      [&] { setrlimit(RLIMIT_FSIZE, &before); });
}

TEST(FullDisk, TheRunSaysSoAndKeepsWhatItHad) {
  const TempFolder temp;
  if (std::system(("unshare -rm mount -t tmpfs -o size=4m none " + temp.path() + " 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "a small disk cannot be mounted here (unshare -rm)";
  }
  const auto outcomes =
      Ranks({.world = 1,
             .mode = "fill_the_disk",
             .env = {{"TEST_FOLDER", temp.path()}},
             .prefix =
                 [&](int) {
                   const std::string mount = "mount -t tmpfs -o size=4m none " + temp.path();
                   return std::vector<std::string>{"unshare", "-rm", "sh", "-c", mount + " && exec \"$0\" \"$@\""};
                 }})
          .wait();
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].output;
}

TEST(FullDisk, ALimitOfFileSizesIsToldTheSameWay) {
  const auto outcomes = Ranks({.world = 1, .mode = "limit_file_sizes"}).wait();
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].output;
}

}  // namespace

int run(int argc, char** argv) {
  return rank_main(argc, argv,
                   {{"train_until_killed", train_until_killed},
                    {"train_to_the_end", train_to_the_end},
                    {"fill_the_disk", fill_the_disk},
                    {"limit_file_sizes", limit_file_sizes}});
}

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
