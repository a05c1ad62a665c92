// Chunks between host memory and a GPU, and who else copies meanwhile.
#include "device/cuda_copy_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>

#include "cuda/gpu.h"

namespace shoal {
namespace {

constexpr size_t kNbytes = size_t{64} << 20;  // of a chunk
constexpr size_t kTurn = size_t{32} << 20;    // a copy stream gives one after these bytes,
constexpr size_t kPiece = size_t{40} << 20;   // and takes no more than these at once
constexpr int kChunks = 24;
constexpr size_t kSmall = size_t{1} << 20;  // a few bytes to the GPU go with the command, not by the copy engine

class CudaCopyStreams : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    queue_ = std::make_unique<cuda::Stream>();
    copy_streams_ = make_cuda_copy_streams(0, queue_->handle(), kChunks, std::make_shared<Alarms>());
    host_ = std::make_unique<cuda::PinnedMemory>(kNbytes);
    device_ = static_cast<std::byte*>(take(kNbytes));
  }
  void TearDown() override {
    copy_streams_.reset();
    OnGpu::TearDown();
  }
  std::byte* host() const { return static_cast<std::byte*>(host_->data()); }

  // Gives the copy streams all chunks with `give`, then `small` to a stream beside them, and says in which part of the
  // time that the chunks take it was through: the least of a few tries, as others may use the GPU.
  double part_that_a_small_copy_takes(const std::function<void(int)>& give, const std::function<void()>& hold_queue,
                                      const std::function<void(cuda::StreamHandle)>& small) {
    using cuda::Event;
    const cuda::Stream beside;
    Event begin(Event::Kind::timed), through(Event::Kind::timed), all_through(Event::Kind::timed);
    double least = 1;
    for (int attempt = 0; attempt < 6; ++attempt) {
      begin.record(beside.handle());
      for (int chunk = 0; chunk < kChunks; ++chunk) give(chunk);
      small(beside.handle());
      through.record(beside.handle());
      hold_queue();  // until the last chunk is through
      all_through.record(queue_->handle());
      cuda::synchronize(beside.handle());
      cuda::synchronize(queue_->handle());
      least = std::min(least, through.seconds_since(begin) / all_through.seconds_since(begin));
    }
    return least;
  }

  std::unique_ptr<cuda::Stream> queue_;
  std::unique_ptr<CopyStreams> copy_streams_;
  std::unique_ptr<cuda::PinnedMemory> host_;
  std::byte* device_ = nullptr;
};

TEST_F(CudaCopyStreams, CarryEveryByte) {
  const cuda::PinnedMemory back(kNbytes);
  for (const size_t nbytes : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, kTurn - 131, size_t{1}, size_t{64}, kTurn,
                              kTurn - 1, kPiece, kPiece + 1, kNbytes}) {
    for (size_t i = 0; i < nbytes; ++i) host()[i] = static_cast<std::byte>(i * 31 % 251 + nbytes % 5);
    std::memset(back.data(), 0, kNbytes);
    copy_streams_->copy_in(0, device_, host(), nbytes, /*after=*/-1);
    copy_streams_->hold_queue(0);
    copy_streams_->mark_used(0);
    copy_streams_->copy_out(0, static_cast<std::byte*>(back.data()), device_, nbytes);
    copy_streams_->wait_out(0);
    EXPECT_EQ(std::memcmp(host(), back.data(), nbytes), 0) << nbytes;
  }
}

// The bytes that go by a second stream wait for an engine that somebody else keeps busy.
TEST_F(CudaCopyStreams, AChunkIsThroughWithItsLastByte) {
  const cuda::PinnedMemory elsewhere(kNbytes);
  const cuda::Stream busy;
  std::memset(host(), 7, kNbytes);
  copy_streams_->copy_in(0, device_, host(), kNbytes, /*after=*/-1);
  copy_streams_->wait_in(0);
  for (int attempt = 0; attempt < 4; ++attempt) {
    std::memset(host(), 0, kNbytes);
    for (int i = 0; i < 8; ++i) cuda::copy(elsewhere.data(), device_, kNbytes, busy.handle());
    copy_streams_->copy_out(0, host(), device_, kTurn);
    copy_streams_->wait_out(0);
    EXPECT_EQ(std::to_integer<int>(host()[kTurn - 1]), 7);
    cuda::synchronize(busy.handle());
  }
}

// Without a turn it is through with the last chunk.
TEST_F(CudaCopyStreams, ASmallCopyToTheHostDoesNotWaitForAllChunks) {
  if (tests_are_small()) GTEST_SKIP() << "times mean nothing under compute-sanitizer";
  const cuda::PinnedMemory small(kSmall);
  const double part = part_that_a_small_copy_takes(
      [&](int chunk) { copy_streams_->copy_out(chunk, host(), device_, kNbytes); },
      [&] { copy_streams_->hold_queue_out(kChunks - 1); },
      [&](cuda::StreamHandle stream) { cuda::copy(small.data(), device_, kSmall, stream); });
  EXPECT_LT(part, 0.5);
}

TEST_F(CudaCopyStreams, ASmallCopyToTheGpuDoesNotWaitForAllChunks) {
  if (tests_are_small()) GTEST_SKIP() << "times mean nothing under compute-sanitizer";
  const cuda::PinnedMemory small(kSmall);
  void* place = take(kSmall);
  const double part = part_that_a_small_copy_takes(
      [&](int chunk) { copy_streams_->copy_in(chunk, device_, host(), kNbytes, /*after=*/-1); },
      [&] { copy_streams_->hold_queue(kChunks - 1); },
      [&](cuda::StreamHandle stream) { cuda::copy(place, small.data(), kSmall, stream); });
  EXPECT_LT(part, 0.5);
}

}  // namespace
}  // namespace shoal
