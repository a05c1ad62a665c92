#include "device/ferry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "message_of.h"
#include "shoal/error.h"

namespace shoal {
namespace {

// Wires within host memory that take their time and write down what they did.
class SlowWires final : public Wires {
 public:
  struct Log {
    std::mutex mutex;
    std::vector<std::string> lines;
    int fail_at = -1;  // the chunk whose way in fails
    int open_in = 0, most_open_in = 0;
    void add(std::string line) {
      const std::lock_guard lock(mutex);
      lines.push_back(std::move(line));
    }
  };
  explicit SlowWires(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  std::string pin(std::byte*, size_t) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    log_->add("pin");
    return "the system does not want to";
  }
  void copy_in(int chunk, std::byte* to, const std::byte* from, size_t nbytes, int after) override {
    if (chunk == log_->fail_at) throw Error("wire", "cut");
    std::memcpy(to, from, nbytes);
    log_->add("in " + std::to_string(chunk) + " after " + std::to_string(after));
    const std::lock_guard lock(log_->mutex);
    log_->most_open_in = std::max(log_->most_open_in, ++log_->open_in);
  }
  void hold_queue(int chunk) override { log_->add("hold " + std::to_string(chunk)); }
  void mark_used(int chunk) override { log_->add("used " + std::to_string(chunk)); }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::memcpy(to, from, nbytes);
    log_->add("out " + std::to_string(chunk));
  }
  void wait_in(int) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(log_->mutex);
    --log_->open_in;
  }
  void wait_out(int) override {}

 private:
  std::shared_ptr<Log> log_;
};

Ferry::Copy copy_of(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  return {to.data(), from.data(), from.size()};
}

std::ptrdiff_t position(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) - lines.begin();
}

TEST(Ferry, BringsAfterWhatLiesThereIsBackAndUsesWhatIsThere) {
  const auto log = std::make_shared<SlowWires::Log>();
  std::vector<std::byte> home0(100, std::byte{1}), home1(100, std::byte{2}), place(100);
  Ferry ferry(std::make_unique<SlowWires>(log), 2);
  ferry.bring(0, copy_of(place, home0), -1);
  ferry.begin_use(0);
  for (std::byte& byte : place) byte = std::byte{7};
  ferry.take_back(0, copy_of(home0, place));
  ferry.bring(1, copy_of(place, home1), 0);
  ferry.begin_use(1);
  EXPECT_EQ(place[99], std::byte{2});
  EXPECT_EQ(home0[99], std::byte{7});
  ferry.settle();
  EXPECT_LT(position(log->lines, "used 0"), position(log->lines, "out 0"));
  EXPECT_LT(position(log->lines, "out 0"), position(log->lines, "in 1 after 0"));
  EXPECT_LT(position(log->lines, "in 1 after 0"), position(log->lines, "hold 1"));
  EXPECT_EQ(ferry.counters().brought_nbytes, 200u);
  EXPECT_EQ(ferry.counters().taken_nbytes, 100u);
  EXPECT_GT(ferry.counters().waited_seconds, 0.005);  // the way out took 10 ms, and begin_use(1) waited for it
}

TEST(Ferry, PinsFirstAndSaysWhyItCouldNot) {
  const auto log = std::make_shared<SlowWires::Log>();
  std::vector<std::byte> home(8), place(8);
  Ferry ferry(std::make_unique<SlowWires>(log), 1);
  ferry.pin(home.data(), home.size());
  ferry.bring(0, copy_of(place, home), -1);
  ferry.begin_use(0);
  EXPECT_EQ(log->lines.front(), "pin");
  EXPECT_EQ(ferry.unpinned_because(), "the system does not want to");
}

TEST(Ferry, AWireHasFewCopiesAtATime) {
  const auto log = std::make_shared<SlowWires::Log>();
  std::vector<std::byte> home(8), place(8);
  Ferry ferry(std::make_unique<SlowWires>(log), 20);
  for (int chunk = 0; chunk < 20; ++chunk) ferry.bring(chunk, copy_of(place, home), -1);
  ferry.settle();
  EXPECT_LE(log->most_open_in, 2);
  EXPECT_EQ(log->lines.size(), 20u);
}

TEST(Ferry, AFaultIsThrownWhereTheBytesAreNeeded) {
  const auto log = std::make_shared<SlowWires::Log>();
  log->fail_at = 1;
  std::vector<std::byte> home(8), place(8);
  Ferry ferry(std::make_unique<SlowWires>(log), 2);
  ferry.bring(0, copy_of(place, home), -1);
  ferry.begin_use(0);
  ferry.bring(1, copy_of(place, home), -1);
  EXPECT_NE(testing::message_of([&] { ferry.begin_use(1); }).find("cut"), std::string::npos);
  EXPECT_NE(testing::message_of([&] { ferry.settle(); }).find("cut"), std::string::npos);
}

TEST(Ferry, EndsWithoutWhatHasNotBegun) {
  const auto log = std::make_shared<SlowWires::Log>();
  std::vector<std::byte> home(8), place(8);
  {
    Ferry ferry(std::make_unique<SlowWires>(log), 50);
    for (int chunk = 0; chunk < 50; ++chunk) ferry.take_back(chunk, copy_of(home, place));
  }
  EXPECT_LT(std::count_if(log->lines.begin(), log->lines.end(), [](const auto& line) { return line[0] == 'o'; }), 50);
}

}  // namespace
}  // namespace shoal
