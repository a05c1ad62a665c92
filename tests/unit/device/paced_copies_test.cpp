#include "device/paced_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "message_of.h"
#include "shoal/error.h"

namespace shoal {
namespace {

// CopyStreams within host memory that write down what they were given.
class LoggedCopyStreams final : public CopyStreams {
 public:
  struct Log {
    std::vector<std::string> lines;
    int fail_at = -1;  // the chunk whose way in fails
  };
  explicit LoggedCopyStreams(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  std::string pin(std::byte*, size_t) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    log_->lines.push_back("pin");
    return "the system does not want to";
  }
  void follow_queue() override { log_->lines.push_back("follow"); }
  void mark_queue() override {}
  void follow_mark() override {}
  void copy_in(int chunk, std::byte* to, const std::byte* from, size_t nbytes, int after) override {
    if (chunk == log_->fail_at) throw Error("stream", "cut");
    std::memcpy(to, from, nbytes);
    log_->lines.push_back("in " + std::to_string(chunk) + " after " + std::to_string(after));
  }
  void hold_queue(int chunk) override {
    log_->lines.push_back("hold " + std::to_string(chunk));
    ++holds_;
  }
  void hold_queue_out(int chunk) override { log_->lines.push_back("hold out " + std::to_string(chunk)); }
  void make_room(int) override {}
  void mark_used(int chunk) override { log_->lines.push_back("used " + std::to_string(chunk)); }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    std::memcpy(to, from, nbytes);
    log_->lines.push_back("out " + std::to_string(chunk));
  }
  void wait_in(int chunk) override { log_->lines.push_back("wait in " + std::to_string(chunk)); }
  void wait_out(int chunk) override { log_->lines.push_back("wait out " + std::to_string(chunk)); }
  void wait_used(int) override {}
  double newly_held_seconds() override { return 0.25 * std::exchange(holds_, 0); }

 private:
  int holds_ = 0;
  std::shared_ptr<Log> log_;
};

using Lines = std::vector<std::string>;

PacedCopies::Copy copy_of(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  return {to.data(), from.data(), from.size()};
}

int64_t count_of(const Lines& lines, const std::string& begin) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(begin); });
}

TEST(PacedCopies, GivesWhatAUseNeedsAndWhatLiesInItsWay) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home0(100, std::byte{1}), home1(100, std::byte{2}), place(100);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 2);
  copies.bring(0, copy_of(place, home0), -1);
  copies.begin_use(0);
  for (std::byte& byte : place) byte = std::byte{7};
  copies.take_back(0, copy_of(home0, place));
  copies.bring(1, copy_of(place, home1), 0);
  copies.begin_use(1);
  EXPECT_EQ(place[99], std::byte{2});
  EXPECT_EQ(home0[99], std::byte{7});
  EXPECT_EQ(log->lines, (Lines{"in 0 after -1", "hold 0", "used 0", "out 0", "in 1 after 0", "hold 1"}));
  EXPECT_EQ(copies.counters().brought_nbytes, 200u);
  EXPECT_EQ(copies.counters().taken_nbytes, 100u);
}

TEST(PacedCopies, GivesWhatMayNotWaitAndWhatLiesInItsWayAndTheRestByItsShare) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 10);
  for (int call = 0; call < 9; ++call) copies.pace();
  copies.end_step();
  for (int chunk = 0; chunk < 6; ++chunk) copies.take_back(chunk, copy_of(home, place));
  copies.bring(6, copy_of(place, home), 0);
  copies.bring(7, copy_of(place, home), 1);
  log->lines.clear();
  copies.bring(8, copy_of(place, home), -1);
  copies.pace(/*may_wait=*/1);
  EXPECT_EQ(log->lines, (Lines{"follow", "out 0", "in 6 after 0", "out 1", "in 7 after 1"}));
  log->lines.clear();
  copies.pace(/*may_wait=*/1);
  EXPECT_EQ(log->lines, (Lines{"follow", "in 8 after -1"})) << "its share, and no more";
  log->lines.clear();
  copies.pace(/*may_wait=*/0);
  EXPECT_EQ(log->lines, (Lines{"follow", "out 2", "out 3", "out 4", "out 5"}));
}

TEST(PacedCopies, PinsFirstAndSaysWhyItCouldNot) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 1);
  copies.pin(home.data(), home.size());
  copies.bring(0, copy_of(place, home), -1);
  copies.begin_use(0);
  EXPECT_EQ(log->lines.front(), "pin");
  EXPECT_EQ(copies.unpinned_because(), "the system does not want to");
}

// One round of six chunks: all are used and go back, all are brought again, and `paces` calls lie between.
void go_round(PacedCopies& copies, std::vector<std::byte>& home, std::vector<std::byte>& place, int paces) {
  for (int chunk = 0; chunk < 6; ++chunk) copies.bring(chunk, copy_of(place, home), chunk);
  for (int call = 0; call < paces; ++call) copies.pace();
  for (int chunk = 0; chunk < 6; ++chunk) {
    copies.begin_use(chunk);
    copies.take_back(chunk, copy_of(home, place));
  }
  copies.end_step();
}

TEST(PacedCopies, CopiesKeepStepWithTheWorkOfTheRoundBefore) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 6);
  go_round(copies, home, place, 7);  // nobody knows yet how many calls there are: all is given at the end
  EXPECT_EQ(count_of(log->lines, "follow"), 0);
  for (int chunk = 0; chunk < 6; ++chunk) copies.bring(chunk, copy_of(place, home), chunk);
  log->lines.clear();
  int64_t given = 0;
  for (int call = 1; call <= 6; ++call) {  // twelve orders, and the last of seven calls is to spare
    copies.pace();
    const int64_t now = count_of(log->lines, "in ") + count_of(log->lines, "out ");
    EXPECT_EQ(now, given + 2) << "call " << call;
    given = now;
  }
  EXPECT_EQ(count_of(log->lines, "follow"), 6);
  copies.pace();
  EXPECT_EQ(count_of(log->lines, "follow"), 6) << "there was nothing left to give";
  // What goes out is ahead of what comes to its place.
  EXPECT_LT(std::find(log->lines.begin(), log->lines.end(), "out 0"),
            std::find(log->lines.begin(), log->lines.end(), "in 0 after 0"));
}

// A step that is skipped uses nothing: its calls are counted all the same, and what is under way stays.
TEST(PacedCopies, ASkippedStepIsAStep) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 6);
  go_round(copies, home, place, 4);
  for (int chunk = 0; chunk < 6; ++chunk) copies.bring(chunk, copy_of(place, home), chunk);
  for (int call = 0; call < 4; ++call) copies.pace();
  copies.end_step();
  log->lines.clear();
  for (int call = 0; call < 4; ++call) copies.pace();
  EXPECT_EQ(log->lines, Lines{}) << "all was given out in the step that was skipped";
  for (int chunk = 0; chunk < 6; ++chunk) copies.begin_use(chunk);
  EXPECT_EQ(count_of(log->lines, "hold"), 6);
}

TEST(PacedCopies, CountsWhatTheQueueStoodStillForWhenTheNextRoundBegins) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 6);
  go_round(copies, home, place, 3);
  EXPECT_EQ(copies.counters().held_seconds, 0);
  go_round(copies, home, place, 3);
  EXPECT_EQ(copies.counters().held_seconds, 6 * 0.25);
}

TEST(PacedCopies, AFaultIsThrownWhereTheBytesAreNeeded) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  log->fail_at = 1;
  std::vector<std::byte> home(8), place(8);
  PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 2);
  copies.bring(0, copy_of(place, home), -1);
  copies.bring(1, copy_of(place, home), -1);
  copies.begin_use(0);
  EXPECT_NE(testing::message_of([&] { copies.begin_use(1); }).find("cut"), std::string::npos);
}

TEST(PacedCopies, SettlesWhatWasOrderedAndEndsWithoutWhatWasNot) {
  const auto log = std::make_shared<LoggedCopyStreams::Log>();
  std::vector<std::byte> home(8), place(8);
  {
    PacedCopies copies(std::make_unique<LoggedCopyStreams>(log), 3);
    copies.take_back(0, copy_of(home, place));
    copies.bring(1, copy_of(place, home), 0);
    copies.settle();
    EXPECT_EQ(log->lines, (Lines{"used 0", "out 0", "in 1 after 0", "wait in 1", "wait out 0"}));
    copies.take_back(2, copy_of(home, place));
  }
  EXPECT_EQ(count_of(log->lines, "out 2"), 0);
}

}  // namespace
}  // namespace shoal
