// How long one stream stands still for another.
#include "device/cuda_stalls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/wait_log.h"
#include "cuda/gpu.h"

namespace shoal {
namespace {

constexpr size_t kNbytes = size_t{256} << 20;
constexpr double kFastestBusNbytesPerSecond = 200e9;

class CudaStallsOnGpu : public OnGpu {
 protected:
  // Once there is a GPU to have them on.
  struct Parts {
    cuda::PinnedMemory host{kNbytes};
    cuda::Stream held, beside;
    CudaStalls stalls{0, held.handle()};
    cuda::Event through;  // behind what the stream beside was given
  };

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    device_ = take(kNbytes);
    parts_ = std::make_unique<Parts>();
  }
  void TearDown() override {
    parts_.reset();
    OnGpu::TearDown();
  }

  // Takes a while on the stream beside: many times what a test asks for, also where its thread is held up.
  void copy_to_gpu() {
    for (int i = 0; i < 20; ++i) cuda::copy(device_, parts_->host.data(), kNbytes, parts_->beside.handle());
    parts_->through.record(parts_->beside.handle());
  }
  void wait_for_held() { cuda::synchronize(parts_->held.handle()); }
  void wait_for_beside() { cuda::synchronize(parts_->beside.handle()); }

  std::unique_ptr<Parts> parts_;
  void* device_ = nullptr;
  const double least_ = kNbytes / kFastestBusNbytesPerSecond;
};

TEST_F(CudaStallsOnGpu, CountTheTimeUntilThePointIsReached) {
  cuda::Event begin(cuda::Event::Kind::timed), end(cuda::Event::Kind::timed);
  begin.record(parts_->held.handle());
  copy_to_gpu();
  parts_->stalls.hold(parts_->through);
  end.record(parts_->held.handle());
  wait_for_held();
  const double seconds = parts_->stalls.newly_held_seconds();
  EXPECT_GT(seconds, least_);
  EXPECT_LE(seconds, end.seconds_since(begin));
  EXPECT_EQ(parts_->stalls.newly_held_seconds(), 0) << "each is counted once";
}

TEST_F(CudaStallsOnGpu, CountNothingWhereThePointIsReachedAlready) {
  copy_to_gpu();
  wait_for_beside();
  parts_->stalls.hold(parts_->through);
  wait_for_held();
  EXPECT_LT(parts_->stalls.newly_held_seconds(), least_);
}

// The host gives the held stream nothing while it waits itself.
TEST_F(CudaStallsOnGpu, CountFromWhereTheStreamStopped) {
  for (const bool forget : {true, false}) {
    parts_->stalls.stop();
    copy_to_gpu();
    wait_for_beside();
    if (forget) parts_->stalls.forget_stop();
    parts_->stalls.hold(parts_->through);
    wait_for_held();
    const double seconds = parts_->stalls.newly_held_seconds();
    EXPECT_EQ(seconds > least_, !forget) << seconds;
  }
}

TEST_F(CudaStallsOnGpu, CountNothingThatIsStillUnderWay) {
  copy_to_gpu();
  parts_->stalls.hold(parts_->through);
  const double so_far = parts_->stalls.newly_held_seconds();
  wait_for_held();
  const double after = parts_->stalls.newly_held_seconds();
  EXPECT_TRUE(so_far == 0 || after == 0);
  EXPECT_GT(so_far + after, least_);
}

// A wait of the log lies between what the host knows of its begin and its end, and is as long as what is counted.
TEST_F(CudaStallsOnGpu, AreInTheLogOfWaitsWhereTheHostSawThem) {
  constexpr double kClockNs = 1e6;  // how well two clocks are compared, with room for a machine that is busy
  parts_->stalls.log_as("host: states");
  WaitLog::of_process().begin();
  double counted = 0;
  std::vector<std::pair<int64_t, int64_t>> seen;
  for (int i = 0; i < 2; ++i) {
    const int64_t before_ns = WaitLog::unix_now_ns();
    copy_to_gpu();
    parts_->stalls.hold(parts_->through);
    wait_for_held();
    seen.emplace_back(before_ns, WaitLog::unix_now_ns());
    if (i == 0) counted = parts_->stalls.held_seconds();
  }
  // Nobody counts the second: the end of the log does.
  const std::vector<Wait> waits = WaitLog::of_process().end();
  ASSERT_EQ(waits.size(), 2u);
  double logged = 0;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(waits[i].what, "host: states");
    EXPECT_GT(static_cast<double>(waits[i].begin_ns), static_cast<double>(seen[i].first) - kClockNs);
    EXPECT_LT(static_cast<double>(waits[i].end_ns), static_cast<double>(seen[i].second) + kClockNs);
    const double seconds = static_cast<double>(waits[i].end_ns - waits[i].begin_ns) * 1e-9;
    EXPECT_GT(seconds, least_);
    logged += seconds;
    EXPECT_NEAR(logged, i == 0 ? counted : parts_->stalls.held_seconds(), 1e-7);
  }
}

TEST_F(CudaStallsOnGpu, AreNotInTheLogWithoutAName) {
  for (const char* what : {"", "host: states", ""}) {
    parts_->stalls.log_as(what);
    WaitLog::of_process().begin();
    copy_to_gpu();
    parts_->stalls.hold(parts_->through);
    wait_for_held();
    EXPECT_EQ(WaitLog::of_process().end().size(), *what == '\0' ? 0u : 1u) << what;
  }
}

// Its begin was before the log's: it is there from that on.
TEST_F(CudaStallsOnGpu, ThatReachIntoTheLogsTimeAreCutAtItsBegin) {
  parts_->stalls.log_as("host: states");
  copy_to_gpu();
  parts_->stalls.hold(parts_->through);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the GPU has come to it, and is not through
  const int64_t before_ns = WaitLog::unix_now_ns();
  WaitLog::of_process().begin();
  wait_for_held();
  const std::vector<Wait> waits = WaitLog::of_process().end();
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_GE(waits[0].begin_ns, before_ns);
  EXPECT_LT(static_cast<double>(waits[0].end_ns - waits[0].begin_ns) * 1e-9, parts_->stalls.held_seconds());
}

// Of a period of the log each: the clocks are compared anew.
TEST_F(CudaStallsOnGpu, KnowTheHostsTimeInEachPeriodOfTheLog) {
  parts_->stalls.log_as("host: states");
  for (int period = 0; period < 3; ++period) {
    WaitLog::of_process().begin();
    const int64_t before_ns = WaitLog::unix_now_ns();
    copy_to_gpu();
    parts_->stalls.hold(parts_->through);
    wait_for_held();
    const int64_t after_ns = WaitLog::unix_now_ns();
    const std::vector<Wait> waits = WaitLog::of_process().end();
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_GT(static_cast<double>(waits[0].begin_ns), static_cast<double>(before_ns) - 1e6);
    EXPECT_LT(static_cast<double>(waits[0].end_ns), static_cast<double>(after_ns) + 1e6);
  }
}

}  // namespace
}  // namespace shoal
