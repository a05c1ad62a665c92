// Collectives that have begun on a GPU and do not end: everyone who waits for them throws, soon and with all the words,
// and the process lives on. A stream is held up by a function of the host that waits for the test.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/gpu/nccl_carrier.h"
#include "comm/group/full_group.h"
#include "comm/world/channel_group.h"
#include "cuda/torch_gpu.h"
#include "device/cuda_queue.h"
#include "message_of.h"
#include "shoal/error.h"
#include "unit/comm/rank_threads.h"

namespace shoal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr int64_t kNumel = 1024;
constexpr auto kTimeout = 5s;  // also of NCCL's connecting, which takes a while on a busy GPU
constexpr auto kSoon = 60s;

// Holds a stream up until it is opened, or goes.
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void close(void* stream) {
    auto* opened = new std::shared_ptr<std::atomic<bool>>(opened_);
    const auto hold = [](void* given) {
      const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> own(
          static_cast<std::shared_ptr<std::atomic<bool>>*>(given));
      while (!**own) std::this_thread::sleep_for(1ms);
    };
    const auto status = cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), hold, opened);
    if (status != cudaSuccess) throw Error("test", cudaGetErrorString(status));
  }
  void open() { *opened_ = true; }

 private:
  // Shared with the function on the stream, which looks once more after the gate is gone.
  std::shared_ptr<std::atomic<bool>> opened_ = std::make_shared<std::atomic<bool>>(false);
};

// A rank that computes on a stream of its own and hears of what happens to its channel.
struct Rank {
  explicit Rank(std::unique_ptr<Group> opened, cuda::Stream& compute) : channel(std::move(opened)) {
    queue = make_cuda_queue(gpu().index(), compute.handle());
    queue->heed(full(*channel).alarm());
    whole = queue->allocate(sizeof(float) * kNumel * 2, std::make_shared<Ledger>(), MemoryKind::staging);
    shard = queue->allocate(sizeof(float) * kNumel, std::make_shared<Ledger>(), MemoryKind::staging);
    reading = queue->make_late_read(sizeof(float));
  }
  // Given to the GPU, and not waited for. `after` runs behind it and before its end.
  void reduce(const std::string& unit, std::function<void()> after = nullptr) {
    ReduceScatter args;
    args.subject = {"reduce", unit};
    args.whole = whole->data();
    args.shard = shard->data();
    args.shard_numel = kNumel;
    args.after = std::move(after);
    channel->reduce_scatter(args).wait();
  }
  // What a wait for the GPU throws; "" where it comes to its end.
  std::string wait() {
    return message_of([&] {
      reading->begin(shard->data());
      reading->wait();
    });
  }

  std::unique_ptr<Group> channel;
  std::unique_ptr<Queue> queue;
  std::shared_ptr<Slab> whole, shard;
  std::unique_ptr<LateRead> reading;
};

std::unique_ptr<Group> nccl_channel(Group& host, cuda::Stream& compute) {
  return std::make_unique<ChannelGroup>(std::make_unique<NcclCarrier>(
      host.channel("weights of GPUs"), ComputeStream{gpu().index(), compute.handle()}, "weights"));
}

class GpuWatchdog : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_NEEDS_GPU();
    cuda::use_device(gpu().index());
  }
};

TEST_F(GpuWatchdog, NcclThatDoesNotEndIsNamedWithinSecondsAndTheProcessLivesOn) {
  cuda::Stream compute;
  {
    const auto world = make_thread_groups(1, kTimeout);
    Rank rank(nccl_channel(*world[0], compute), compute);
    rank.reduce("block.2");
    EXPECT_EQ(rank.wait(), "");

    Gate gate;
    const auto begin = std::chrono::steady_clock::now();
    rank.reduce("block.3", [&] { gate.close(full(*rank.channel).stream()); });
    const std::string message = rank.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
    gate.open();
    EXPECT_THAT(message,
                StartsWith("[comm rank 0] reduce of block.3 (weights #2): it began on the GPU of rank 0 and was "
                           "not over within 5 s"));
    // Whatever comes later says the same.
    EXPECT_EQ(message_of([&] { rank.reduce("block.4"); }), message);
    EXPECT_EQ(message_of([&] {
                float value = 0;
                rank.queue->download(&value, rank.shard->data(), sizeof(value));
              }),
              message);
    EXPECT_THAT(message_of([&] {
                  world[0]->barrier({"meet", "hosts"}).wait();
                }),
                HasSubstr("reduce of block.3 (weights #2)"));
  }
  const auto world = make_thread_groups(1, kTimeout);
  Rank rank(nccl_channel(*world[0], compute), compute);
  rank.reduce("block.3");
  EXPECT_EQ(rank.wait(), "");
}

TEST_F(GpuWatchdog, TimeBehindTheRanksOwnComputeIsNotCounted) {
  cuda::Stream compute;
  const auto world = make_thread_groups(1, kTimeout);
  Rank rank(nccl_channel(*world[0], compute), compute);
  Gate gate;
  gate.close(compute.handle());
  rank.reduce("block.3");
  std::thread opener([&] {
    std::this_thread::sleep_for(kTimeout + 2s);
    gate.open();
  });
  EXPECT_EQ(rank.wait(), "");
  opener.join();
}

TEST_F(GpuWatchdog, AnAbortEndsWhatIsUnderWayAtOnce) {
  cuda::Stream compute;
  const auto world = make_thread_groups(1, 600s);
  Rank rank(nccl_channel(*world[0], compute), compute);
  Gate gate;
  rank.reduce("block.3", [&] { gate.close(full(*rank.channel).stream()); });
  const auto begin = std::chrono::steady_clock::now();
  world[0]->abort("the disk is full");
  const std::string message = rank.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
  gate.open();
  EXPECT_EQ(message, "[comm rank 0] reduce of block.3 (weights #1): rank 0 gave up: the disk is full");
}

TEST_F(GpuWatchdog, IsNotBlindWhileAThreadFreesMemoryBehindAStuckCollective) {
  cuda::Stream compute;
  const auto world = make_thread_groups(1, kTimeout);
  Rank rank(nccl_channel(*world[0], compute), compute);
  Gate gate;
  rank.reduce("block.3", [&] { gate.close(full(*rank.channel).stream()); });
  std::thread freer([] {
    cuda::use_device(gpu().index());
    cuda::release(cuda::allocate(1 << 20));
  });
  const auto deadline = std::chrono::steady_clock::now() + kSoon;
  while (!full(*rank.channel).alarm()->raised() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(full(*rank.channel).alarm()->raised());
  gate.open();
  freer.join();
  EXPECT_THAT(rank.wait(), StartsWith("[comm rank 0] reduce of block.3 (weights #1): "));
}

TEST_F(GpuWatchdog, ThreadsOnOneGpuAllEndWhenOneOfTheirStreamsStandsStill) {
  const auto world = make_thread_groups(2, kTimeout);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  Gate gate;
  std::atomic<int> out = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      const auto at = static_cast<size_t>(number);
      cuda::use_device(gpu().index());
      cuda::Stream compute;
      Rank rank(full(*world[at]).device_channel("gradients", gpu().index(), compute.handle()), compute);
      rank.reduce("block.1", [&] {
        if (number == 1) gate.close(full(*rank.channel).stream());
      });
      messages[at] = message_of([&] { rank.reduce("block.0"); });
      if (messages[at].empty()) messages[at] = rank.wait();
      ++out;
      while (out < 2) std::this_thread::sleep_for(1ms);  // memory is freed when the streams move again
      gate.open();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
  for (int number = 0; number < 2; ++number) {
    const std::string& message = messages[static_cast<size_t>(number)];
    EXPECT_THAT(message, StartsWith("[comm rank " + std::to_string(number) + "] reduce of block."));
    EXPECT_THAT(message, AnyOf(HasSubstr("(gradients #1)"), HasSubstr("(gradients #2)")));
    EXPECT_THAT(message, HasSubstr("was not over within 5 s"));
  }
}

TEST_F(GpuWatchdog, InAPartRanksAreNamedByTheirNumberInTheWorld) {
  const auto world = make_thread_groups(3, kTimeout);
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  Gate gate;
  std::atomic<int> out = 0;
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      const auto at = static_cast<size_t>(number);
      cuda::use_device(gpu().index());
      cuda::Stream compute;
      const auto channel = full(*world[at]).device_channel("gradients", gpu().index(), compute.handle());
      auto part = channel->split("half", {{0}, {1, 2}});
      std::unique_ptr<Rank> rank;  // until the gate is open: its memory is freed when the streams move again
      if (number > 0) {
        rank = std::make_unique<Rank>(std::move(part), compute);
        rank->reduce("block.1", [&] {
          if (number == 2) gate.close(full(*rank->channel).stream());
        });
        messages[at] = message_of([&] { rank->reduce("block.0"); });
        if (messages[at].empty()) messages[at] = rank->wait();
      }
      ++out;
      while (out < 3) std::this_thread::sleep_for(1ms);
      gate.open();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int number : {1, 2}) {
    const std::string& message = messages[static_cast<size_t>(number)];
    EXPECT_THAT(message, StartsWith("[comm rank " + std::to_string(number) + "] reduce of block."));
    EXPECT_THAT(message, HasSubstr("(half of gradients #"));
    EXPECT_THAT(message, AnyOf(HasSubstr("on the GPU of rank 1"), HasSubstr("on the GPU of rank 2")));
  }
}

}  // namespace
}  // namespace shoal::testing
