// Collectives of GPU memory: a world of one, threads on one GPU, through host memory, and NCCL with one rank; in every
// dtype, against the same collectives of host memory, to the bit.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <thread>

#include "comm/gpu/cuda_process_carrier.h"
#include "comm/gpu/nccl_carrier.h"
#include "comm/group/full_group.h"
#include "comm/world/channel_group.h"
#include "cuda/torch_gpu.h"
#include "device/cuda_queue.h"
#include "kernels/convert.h"
#include "shoal/error.h"
#include "unit/comm/rank_threads.h"

namespace shoal::testing {
namespace {

constexpr int64_t kShardNumel = 4099;

enum class Way { board, staged };

std::unique_ptr<Group> open_channel(Group& world, Way way, void* compute_stream) {
  if (way == Way::board) return full(world).device_channel("test", gpu().index(), compute_stream);
  return std::make_unique<ChannelGroup>(
      make_cuda_process_carrier(world.channel("test"), {gpu().index(), compute_stream}));
}

std::vector<std::byte> values_of(int rank, int64_t numel, DType dtype) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(0.37f * static_cast<float>((i * 7 + rank * 13) % 101) - 11.0f);
  std::vector<std::byte> bytes(static_cast<size_t>(numel) * nbytes_of(dtype));
  kernels::convert(values.data(), DType::f32, bytes.data(), dtype, numel);
  return bytes;
}

// Runs `test` on every rank with its host world, its GPU channel and the queue on which it computes.
using Test = std::function<void(Group& host, Group& device, Queue& queue)>;
void on_gpu_ranks(int world, Way way, const Test& test) {
  gpu();
  run_ranks(world, [&](Group& group) {
    const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
    const std::unique_ptr<Group> device = open_channel(group, way, queue->stream());
    test(group, *device, *queue);
    group.barrier({"end", "test"}).wait();
  });
}

class GpuCollectives : public ::testing::TestWithParam<std::tuple<int, Way, DType>> {
 protected:
  void SetUp() override { SHOAL_NEEDS_GPU(); }
  int world() const { return std::get<0>(GetParam()); }
  Way way() const { return std::get<1>(GetParam()); }
  DType dtype() const { return std::get<2>(GetParam()); }
};

std::shared_ptr<Slab> slab_of(Queue& queue, const std::vector<std::byte>& bytes) {
  auto slab = queue.allocate(bytes.size(), std::make_shared<Ledger>(), MemoryKind::staging);
  queue.upload(slab->data(), bytes.data(), bytes.size());
  return slab;
}

std::vector<std::byte> read(Queue& queue, const Slab& slab) {
  std::vector<std::byte> bytes(slab.nbytes());
  queue.download(bytes.data(), slab.data(), bytes.size());
  return bytes;
}

TEST_P(GpuCollectives, AllGatherBringsEveryShard) {
  on_gpu_ranks(world(), way(), [&](Group& host, Group& device, Queue& queue) {
    const std::vector<std::byte> own = values_of(host.rank(), kShardNumel, dtype());
    const auto shard = slab_of(queue, own);
    const auto whole = slab_of(queue, std::vector<std::byte>(own.size() * static_cast<size_t>(world())));
    for (int turn = 0; turn < 3; ++turn) {
      queue.zero(whole->data(), whole->nbytes());
      device
          .all_gather({.subject = {"gather", "test"},
                       .shard = shard->data(),
                       .whole = whole->data(),
                       .shard_nbytes = own.size(),
                       .keep = shard})
          .wait();
      const std::vector<std::byte> got = read(queue, *whole);
      for (int rank = 0; rank < world(); ++rank) {
        const std::vector<std::byte> expected = values_of(rank, kShardNumel, dtype());
        ASSERT_EQ(std::memcmp(got.data() + static_cast<size_t>(rank) * own.size(), expected.data(), own.size()), 0);
      }
    }
  });
}

TEST_P(GpuCollectives, ReduceScatterHasTheBitsOfTheHosts) {
  for (const auto& [carry, group] : std::vector<std::pair<float, int>>{{0, 0}, {1, 0}, {0.5f, 2}}) {
    on_gpu_ranks(world(), way(), [&, carry = carry, group = group](Group& host, Group& device, Queue& queue) {
      const int64_t whole_numel = kShardNumel * world();
      const std::vector<std::byte> own = values_of(host.rank(), whole_numel, dtype());
      std::vector<float> on_host(static_cast<size_t>(kShardNumel), 0.5f);
      ReduceScatter args;
      args.subject = {"reduce", "test"};
      args.whole_dtype = dtype();
      args.shard_numel = kShardNumel;
      args.post = 1.0f / 3.0f;
      args.carry = carry;
      args.groups.size = group;
      args.piece_numel = 1000;
      ReduceScatter for_host = args;
      for_host.whole = own.data();
      for_host.shard = on_host.data();
      host.reduce_scatter(for_host).wait();

      const auto whole = slab_of(queue, own);
      std::vector<std::byte> before(static_cast<size_t>(kShardNumel) * sizeof(float));
      const std::vector<float> halves(static_cast<size_t>(kShardNumel), 0.5f);
      std::memcpy(before.data(), halves.data(), before.size());
      const auto shard = slab_of(queue, before);
      args.whole = whole->data();
      args.shard = shard->data();
      args.keep = whole;
      bool after_ran = false;
      args.after = [&] { after_ran = true; };
      device.reduce_scatter(args).wait();
      EXPECT_TRUE(after_ran);
      const std::vector<std::byte> got = read(queue, *shard);
      EXPECT_EQ(std::memcmp(got.data(), on_host.data(), got.size()), 0) << "carry " << carry << ", groups of " << group;
    });
  }
}

TEST_P(GpuCollectives, AllReduceAndBroadcastHaveTheBitsOfTheHosts) {
  on_gpu_ranks(world(), way(), [&](Group& host, Group& device, Queue& queue) {
    std::vector<std::byte> on_host = values_of(host.rank(), kShardNumel, dtype());
    const auto data = slab_of(queue, on_host);
    AllReduce args;
    args.subject = {"sum", "test"};
    args.dtype = dtype();
    args.numel = kShardNumel;
    args.post = 0.25f;
    args.data = on_host.data();
    host.all_reduce(args).wait();
    args.data = data->data();
    device.all_reduce(args).wait();
    EXPECT_EQ(read(queue, *data), on_host);

    const auto told = slab_of(queue, values_of(host.rank(), kShardNumel, dtype()));
    device
        .broadcast({.subject = {"tell", "test"},
                    .data = told->data(),
                    .nbytes = told->nbytes(),
                    .root = world() - 1,
                    .keep = told})
        .wait();
    EXPECT_EQ(read(queue, *told), values_of(world() - 1, kShardNumel, dtype()));
  });
}

// Either into memory of its own, or by a function that reads the slices in the order of ranks.
TEST_P(GpuCollectives, ExchangeBringsEverySliceToItsRank) {
  on_gpu_ranks(world(), way(), [&](Group& host, Group& device, Queue& queue) {
    const std::vector<std::byte> own = values_of(host.rank(), kShardNumel * world(), dtype());
    const size_t slice = own.size() / static_cast<size_t>(world());
    std::vector<std::byte> expected(own.size());
    Exchange args;
    args.subject = {"exchange", "test"};
    args.slice_nbytes = slice;
    args.slices = own.data();
    args.received = expected.data();
    host.exchange(args).wait();

    const auto slices = slab_of(queue, own);
    const auto received = slab_of(queue, std::vector<std::byte>(own.size()));
    const std::unique_ptr<Queue> on_stream = make_cuda_queue(gpu().index(), full(device).stream());
    args.slices = slices->data();
    for (const bool taken : {false, true}) {
      queue.zero(received->data(), received->nbytes());
      args.received = taken ? nullptr : received->data();
      args.take = nullptr;
      if (taken) {
        args.take = [&](const Exchange::Part& part) {
          for (size_t rank = 0; rank < static_cast<size_t>(world()); ++rank) {
            on_stream->copy(received->data() + rank * slice + part.begin, part.sources[rank], part.nbytes);
          }
        };
      }
      device.exchange(args).wait();
      EXPECT_EQ(read(queue, *received), expected) << "taken " << taken;
    }
  });
}

Parts halves(int world) {
  if (world == 4) return {{0, 2}, {3, 1}};
  if (world == 3) return {{2, 0}, {1}};
  return world == 2 ? Parts{{1, 0}} : Parts{{0}};
}

// A part sums what its own ranks bring, in its own order; the world's collectives and the part's take turns on one
// stream without a wait of the host's between them.
TEST_P(GpuCollectives, PartsSumWhatTheirRanksBring) {
  const Parts parts = halves(world());
  on_gpu_ranks(world(), way(), [&](Group& host, Group& device, Queue& queue) {
    const auto host_part = host.split("half", parts);
    const auto part = device.split("half", parts);
    EXPECT_EQ(part->members(), host_part->members());
    EXPECT_EQ(full(*part).stream(), full(device).stream());
    EXPECT_EQ(part->transport_name(), device.transport_name());

    std::vector<std::byte> of_part = values_of(host.rank(), kShardNumel, dtype()), of_world = of_part;
    const auto in_part = slab_of(queue, of_part), in_world = slab_of(queue, of_world);
    AllReduce args;
    args.subject = {"sum", "test"};
    args.dtype = dtype();
    args.numel = kShardNumel;
    args.post = 0.25f;
    args.data = of_part.data();
    host_part->all_reduce(args).wait();
    args.data = of_world.data();
    host.all_reduce(args).wait();
    args.data = in_part->data();
    const Handle first = part->all_reduce(args);
    args.data = in_world->data();
    const Handle second = device.all_reduce(args);
    first.wait();
    second.wait();
    EXPECT_EQ(read(queue, *in_part), of_part);
    EXPECT_EQ(read(queue, *in_world), of_world);

    const auto other = part->channel("other");
    const std::vector<std::byte> own = values_of(host.rank(), 64, dtype());
    const auto shard = slab_of(queue, own);
    const auto whole = slab_of(queue, std::vector<std::byte>(own.size() * part->members().size()));
    other
        ->all_gather({.subject = {"gather", "test"},
                      .shard = shard->data(),
                      .whole = whole->data(),
                      .shard_nbytes = own.size(),
                      .keep = shard})
        .wait();
    const std::vector<std::byte> got = read(queue, *whole);
    for (size_t rank = 0; rank < part->members().size(); ++rank) {
      const std::vector<std::byte> expected = values_of(part->members()[rank], 64, dtype());
      EXPECT_EQ(std::memcmp(got.data() + rank * own.size(), expected.data(), own.size()), 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuCollectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(Way::board, Way::staged),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           const DType dtype = std::get<2>(info.param);
                           return fmt::format("world{}_{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param) == Way::board ? "board" : "staged",
                                              dtype == DType::f32    ? "f32"
                                              : dtype == DType::bf16 ? "bf16"
                                                                     : "f16");
                         });

// Of host memory that comes over the bus: the stream that computes stands still for it, the host's thread hardly.
TEST(GpuChannel, CountsHowLongTheGpuStoodStill) {
  SHOAL_NEEDS_GPU();
  gpu();
  constexpr size_t kNbytes = size_t{1} << 30;  // takes many times what is asked for, also where a thread is held up
  constexpr double kLeastSeconds = 1e-3;
  const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
  const std::unique_ptr<Group> channel =
      full(*make_single_group()).device_channel("test", gpu().index(), queue->stream());
  const cuda::PinnedMemory shard(kNbytes);
  const auto whole = queue->allocate(kNbytes, std::make_shared<Ledger>(), MemoryKind::staging);
  EXPECT_EQ(full(*channel).held_seconds(), 0);
  channel
      ->all_gather({.subject = {"gather", "test"},
                    .shard = shard.data(),
                    .whole = whole->data(),
                    .shard_nbytes = kNbytes,
                    .keep = whole})
      .wait();
  cuda::synchronize(queue->stream());
  const double held = full(*channel).held_seconds();
  EXPECT_GT(held, kLeastSeconds);
  EXPECT_EQ(full(*channel).held_seconds(), held) << "so far: a collective counts once";
}

TEST(Nccl, AWorldOfOneGathersReducesAndBroadcastsInEveryDtype) {
  SHOAL_NEEDS_GPU();
  gpu();
  const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
  ChannelGroup channel(std::make_unique<NcclCarrier>(make_single_group(), ComputeStream{gpu().index(), nullptr}));
  EXPECT_EQ(channel.transport_name(), "GPU, NCCL");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<std::byte> own = values_of(0, kShardNumel, dtype);
    const auto sent = slab_of(*queue, own);
    const auto gathered = slab_of(*queue, std::vector<std::byte>(own.size()));
    channel
        .all_gather({.subject = {"gather", "test"},
                     .shard = sent->data(),
                     .whole = gathered->data(),
                     .shard_nbytes = own.size(),
                     .keep = nullptr})
        .wait();
    EXPECT_EQ(read(*queue, *gathered), own);

    for (const float post : {1.0f, 0.25f}) {
      std::vector<float> expected(static_cast<size_t>(kShardNumel), 0.0f);
      ReduceScatter args;
      args.subject = {"reduce", "test"};
      args.whole_dtype = dtype;
      args.shard_numel = kShardNumel;
      args.post = post;
      args.whole = own.data();
      args.shard = expected.data();
      make_single_group()->reduce_scatter(args).wait();
      const auto shard = slab_of(*queue, std::vector<std::byte>(expected.size() * sizeof(float)));
      args.whole = sent->data();
      args.shard = shard->data();
      channel.reduce_scatter(args).wait();
      EXPECT_EQ(std::memcmp(read(*queue, *shard).data(), expected.data(), shard->nbytes()), 0);
    }
    Exchange exchange;
    exchange.subject = {"exchange", "test"};
    exchange.slices = sent->data();
    exchange.slice_nbytes = own.size();
    queue->zero(gathered->data(), gathered->nbytes());
    exchange.received = gathered->data();
    channel.split("alone", {{0}})->exchange(exchange).wait();
    EXPECT_EQ(read(*queue, *gathered), own);

    AllReduce sum;
    sum.subject = {"sum", "test"};
    sum.data = sent->data();
    sum.dtype = dtype;
    sum.numel = kShardNumel;
    channel.all_reduce(sum).wait();
    channel
        .broadcast(
            {.subject = {"tell", "test"}, .data = sent->data(), .nbytes = own.size(), .root = 0, .keep = nullptr})
        .wait();
    EXPECT_EQ(read(*queue, *sent), own);
  }
}

// By either way of four ranks on one GPU; the parts of a rank that asks for others are named on all.
TEST(GpuDisagreement, RanksThatWantDifferentPartsAreNamed) {
  SHOAL_NEEDS_GPU();
  gpu();
  for (const Way way : {Way::board, Way::staged}) {
    const auto texts = outcomes_of(make_thread_groups(4, std::chrono::seconds(20)), [&](auto& world) {
      const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
      const auto channel = open_channel(*world, way, queue->stream());
      channel->split("half", world->rank() == 3 ? Parts{{0, 1, 2, 3}} : Parts{{0, 1}, {2, 3}});
    });
    for (const size_t rank : {0, 1, 2}) {
      EXPECT_NE(texts[rank].find("rank 3 is at split of half into {0 1 2 3}"), std::string::npos) << texts[rank];
    }
    EXPECT_NE(texts[3].find("rank 0 is at split of half into {0 1} {2 3}"), std::string::npos) << texts[3];
  }
}

// In a part of two, a rank that leaves is named by its number in the world.
TEST(GpuDisagreement, ARankThatLeavesAPartIsNamedByItsNumberInTheWorld) {
  SHOAL_NEEDS_GPU();
  gpu();
  const auto texts = outcomes_of(make_thread_groups(4, std::chrono::seconds(60)), [&](auto& world) {
    const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
    const auto channel = open_channel(*world, Way::board, queue->stream());
    auto part = channel->split("half", {{0, 1}, {2, 3}});
    if (world->rank() == 3) return part.reset();
    const auto data = queue->allocate(64, std::make_shared<Ledger>(), MemoryKind::staging);
    const auto whole = queue->allocate(128, std::make_shared<Ledger>(), MemoryKind::staging);
    AllGather args;
    args.subject = {"gather", "block.0"};
    args.shard = data->data();
    args.whole = whole->data();
    args.shard_nbytes = 64;
    part->all_gather(args).wait();
  });
  EXPECT_NE(texts[2].find("[comm rank 2] gather of block.0 (half of test #1): rank 3 left"), std::string::npos)
      << texts[2];
}

TEST(GpuDisagreement, ARankThatDisagreesIsNamedOnEveryRank) {
  SHOAL_NEEDS_GPU();
  gpu();
  const auto groups = make_thread_groups(2, std::chrono::seconds(20));
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      try {
        const std::unique_ptr<Queue> queue = make_cuda_queue(gpu().index(), nullptr);
        const auto channel = full(*groups[at]).device_channel("test", gpu().index(), nullptr);
        const auto data = queue->allocate(64, std::make_shared<Ledger>(), MemoryKind::staging);
        const auto whole = queue->allocate(128, std::make_shared<Ledger>(), MemoryKind::staging);
        channel
            ->all_gather({.subject = {"gather", rank == 0 ? "block.0" : "block.1"},
                          .shard = data->data(),
                          .whole = whole->data(),
                          .shard_nbytes = 64,
                          .keep = nullptr})
            .wait();
      } catch (const Error& error) {
        messages[at] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("block.0"), std::string::npos) << message;
    EXPECT_NE(message.find("block.1"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace shoal::testing
