// How long one stream stands still for another.
#include "device/cuda_holds.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "cuda/gpu.h"

namespace shoal {
namespace {

constexpr size_t kNbytes = size_t{256} << 20;
constexpr double kFastestBusNbytesPerSecond = 200e9;

class CudaHoldsOnGpu : public OnGpu {
 protected:
  // Once there is a GPU to have them on.
  struct Parts {
    cuda::PinnedMemory host{kNbytes};
    cuda::Stream held, beside;
    CudaHolds holds{0, held.handle()};
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

TEST_F(CudaHoldsOnGpu, CountTheTimeUntilThePointIsReached) {
  cuda::Event begin(cuda::Event::Kind::timed), end(cuda::Event::Kind::timed);
  begin.record(parts_->held.handle());
  copy_to_gpu();
  parts_->holds.hold(parts_->through);
  end.record(parts_->held.handle());
  wait_for_held();
  const double seconds = parts_->holds.newly_held_seconds();
  EXPECT_GT(seconds, least_);
  EXPECT_LE(seconds, end.seconds_since(begin));
  EXPECT_EQ(parts_->holds.newly_held_seconds(), 0) << "each is counted once";
}

TEST_F(CudaHoldsOnGpu, CountNothingWhereThePointIsReachedAlready) {
  copy_to_gpu();
  wait_for_beside();
  parts_->holds.hold(parts_->through);
  wait_for_held();
  EXPECT_LT(parts_->holds.newly_held_seconds(), least_);
}

// The host gives the held stream nothing while it waits itself.
TEST_F(CudaHoldsOnGpu, CountFromWhereTheStreamStopped) {
  for (const bool forget : {true, false}) {
    parts_->holds.stop();
    copy_to_gpu();
    wait_for_beside();
    if (forget) parts_->holds.forget_stop();
    parts_->holds.hold(parts_->through);
    wait_for_held();
    const double seconds = parts_->holds.newly_held_seconds();
    EXPECT_EQ(seconds > least_, !forget) << seconds;
  }
}

TEST_F(CudaHoldsOnGpu, CountNothingThatIsStillUnderWay) {
  copy_to_gpu();
  parts_->holds.hold(parts_->through);
  const double so_far = parts_->holds.newly_held_seconds();
  wait_for_held();
  const double after = parts_->holds.newly_held_seconds();
  EXPECT_TRUE(so_far == 0 || after == 0);
  EXPECT_GT(so_far + after, least_);
}

}  // namespace
}  // namespace shoal
