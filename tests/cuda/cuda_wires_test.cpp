// Chunks between host memory and a GPU, and who else copies meanwhile.
#include "device/cuda_wires.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>

#include "cuda/gpu.h"

namespace shoal {
namespace {

constexpr size_t kNbytes = size_t{64} << 20;  // of a chunk
constexpr int kChunks = 24;

class CudaWires : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    queue_ = std::make_unique<cuda::Stream>();
    wires_ = make_cuda_wires(0, queue_->handle(), kChunks, std::make_shared<Alarms>());
    host_ = std::make_unique<cuda::PinnedMemory>(kNbytes);
    device_ = static_cast<std::byte*>(take(kNbytes));
  }
  void TearDown() override {
    wires_.reset();
    OnGpu::TearDown();
  }
  std::byte* host() const { return static_cast<std::byte*>(host_->data()); }

  // Gives the wires all chunks with `give`, then `small` to a stream beside them, and says in which part of the time
  // that the chunks take it was through.
  double part_that_a_small_copy_takes(const std::function<void(int)>& give, const std::function<void(int)>& wait,
                                      const std::function<void(cuda::StreamHandle)>& small) {
    const cuda::Stream beside;
    give(0);  // what is made at the first call is not measured
    small(beside.handle());
    wait(0);
    cuda::synchronize(beside.handle());
    const auto begin = std::chrono::steady_clock::now();
    for (int chunk = 0; chunk < kChunks; ++chunk) give(chunk);
    small(beside.handle());
    cuda::synchronize(beside.handle());
    const auto through = std::chrono::steady_clock::now();
    wait(kChunks - 1);
    return (through - begin) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
  }

  std::unique_ptr<cuda::Stream> queue_;
  std::unique_ptr<Wires> wires_;
  std::unique_ptr<cuda::PinnedMemory> host_;
  std::byte* device_ = nullptr;
};

TEST_F(CudaWires, CarryEveryByte) {
  const cuda::PinnedMemory back(kNbytes);
  for (const size_t nbytes : {size_t{1}, size_t{64}, size_t{65}, size_t{40'000'001}, kNbytes}) {
    for (size_t i = 0; i < nbytes; ++i) host()[i] = static_cast<std::byte>(i * 31 % 251 + nbytes % 5);
    std::memset(back.data(), 0, kNbytes);
    wires_->copy_in(0, device_, host(), nbytes, /*after=*/-1);
    wires_->hold_queue(0);
    wires_->mark_used(0);
    wires_->copy_out(0, static_cast<std::byte*>(back.data()), device_, nbytes);
    wires_->wait_out(0);
    EXPECT_EQ(std::memcmp(host(), back.data(), nbytes), 0) << nbytes;
  }
}

// Without a turn it is through with the last chunk.
TEST_F(CudaWires, ASmallCopyToTheHostDoesNotWaitForAllChunks) {
  const cuda::PinnedMemory number(sizeof(int));
  const double part = part_that_a_small_copy_takes(
      [&](int chunk) { wires_->copy_out(chunk, host(), device_, kNbytes); },
      [&](int chunk) { wires_->wait_out(chunk); },
      [&](cuda::StreamHandle stream) { cuda::copy(number.data(), device_, sizeof(int), stream); });
  EXPECT_LT(part, 0.5);
}

TEST_F(CudaWires, ASmallCopyToTheGpuDoesNotWaitForAllChunks) {
  const cuda::PinnedMemory number(sizeof(int));
  void* place = take(sizeof(int));
  const double part = part_that_a_small_copy_takes(
      [&](int chunk) { wires_->copy_in(chunk, device_, host(), kNbytes, /*after=*/-1); },
      [&](int chunk) { wires_->wait_in(chunk); },
      [&](cuda::StreamHandle stream) { cuda::copy(place, number.data(), sizeof(int), stream); });
  EXPECT_LT(part, 0.5);
}

}  // namespace
}  // namespace shoal
