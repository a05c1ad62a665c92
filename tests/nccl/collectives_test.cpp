// Collectives over NCCL between processes that share one GPU: the bits of the same collectives between the hosts, cut
// into one piece or many; both channels of an engine at once; ranks that NCCL does not take.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

#include "device/cuda_queue.h"
#include "kernels/convert.h"
#include "nccl/nccl_ranks.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> values_of(int rank, int64_t numel, DType dtype) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(0.37f * static_cast<float>((i * 7 + rank * 13) % 101) - 11.0f);
  std::vector<std::byte> bytes(static_cast<size_t>(numel) * nbytes_of(dtype));
  kernels::convert(values.data(), DType::f32, bytes.data(), dtype, numel);
  return bytes;
}

struct Rank {
  Rank() : world(join_world()), queue(make_cuda_queue(gpu().index(), nullptr)) {
    channel = full(*world).device_channel("test", gpu().index(), queue->stream());
  }
  std::shared_ptr<Slab> slab_of(const std::vector<std::byte>& bytes) {
    auto slab = queue->allocate(bytes.size(), std::make_shared<Ledger>(), MemoryKind::staging);
    queue->upload(slab->data(), bytes.data(), bytes.size());
    return slab;
  }
  std::vector<std::byte> read(const Slab& slab) {
    std::vector<std::byte> bytes(slab.nbytes());
    queue->download(bytes.data(), slab.data(), bytes.size());
    return bytes;
  }

  std::unique_ptr<Group> world;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Group> channel;
};

// One reduction on the GPU and the same between the hosts.
void expect_same_sums(Rank& rank, Group& hosts, Group& gpus, DType wire, DType kept, int64_t shard_numel, int64_t piece,
                      bool accumulate, bool in_place) {
  SCOPED_TRACE(fmt::format("{} to {}, {} elements, pieces of {}, accumulate {}, in place {}, {} ranks", name_of(wire),
                           name_of(kept), shard_numel, piece, accumulate, in_place, gpus.size()));
  std::vector<std::byte> own = values_of(rank.world->rank(), shard_numel * gpus.size(), wire);
  const size_t shard_nbytes = static_cast<size_t>(shard_numel) * nbytes_of(kept);
  const size_t own_begin = static_cast<size_t>(gpus.rank()) * shard_nbytes;
  std::vector<std::byte> shard = values_of(50, shard_numel, kept);
  const auto whole_there = rank.slab_of(own), shard_there = rank.slab_of(shard);
  ReduceScatter args;
  args.subject = {"reduce", "test"};
  args.whole_dtype = wire;
  args.shard_dtype = kept;
  args.shard_numel = shard_numel;
  args.post = 1.0f / 3.0f;
  args.carry = accumulate ? 1 : 0;
  args.piece_numel = piece;
  ReduceScatter on_host = args;
  on_host.whole = own.data();
  on_host.shard = in_place ? own.data() + own_begin : shard.data();
  hosts.reduce_scatter(on_host).wait();
  args.whole = whole_there->data();
  args.shard = in_place ? whole_there->data() + own_begin : shard_there->data();
  gpus.reduce_scatter(args).wait();
  const std::vector<std::byte> got = in_place ? rank.read(*whole_there) : rank.read(*shard_there);
  const std::byte* at = got.data() + (in_place ? own_begin : 0);
  EXPECT_EQ(std::memcmp(at, on_host.shard, shard_nbytes), 0);
}

int sums() {
  Rank rank;
  EXPECT_EQ(rank.channel->transport_name(), "GPU, NCCL");
  for (const DType wire : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t numel : {int64_t{1}, int64_t{63}, int64_t{4099}, int64_t{200001}}) {
      for (const int64_t piece : {int64_t{0}, int64_t{1}, numel}) {
        if (piece == 1 && numel > 100)
          continue;  // pieces of 64 bytes; the last cuts into one more than there are ranks
        for (const bool accumulate : {false, true}) {
          expect_same_sums(rank, *rank.world, *rank.channel, wire, DType::f32, numel, piece, accumulate, false);
        }
        expect_same_sums(rank, *rank.world, *rank.channel, wire, wire, numel, piece, false, true);
      }
    }
  }
  // 64 MiB and more is cut whatever is asked for.
  expect_same_sums(rank, *rank.world, *rank.channel, DType::f32, DType::f32, 18'000'001 / rank.world->size(), 0, false,
                   false);
  if (rank.world->size() == 4) {
    const Parts halves{{0, 1}, {2, 3}};
    const auto hosts = rank.world->split("half", halves), gpus = rank.channel->split("half", halves);
    for (const int64_t piece : {int64_t{0}, int64_t{500}}) {
      expect_same_sums(rank, *hosts, *gpus, DType::bf16, DType::f32, 4099, piece, true, false);
    }
  }
  for (const int64_t numel : {int64_t{1}, int64_t{4099}, int64_t{300007}}) {  // summed by all, and by strips
    std::vector<std::byte> own = values_of(rank.world->rank(), numel, DType::f32);
    const auto there = rank.slab_of(own);
    AllReduce args;
    args.subject = {"sum", "test"};
    args.numel = numel;
    args.post = 0.3f;
    args.data = own.data();
    rank.world->all_reduce(args).wait();
    args.data = there->data();
    rank.channel->all_reduce(args).wait();
    EXPECT_EQ(rank.read(*there), own) << numel;
  }
  say("sums are right");
  return 0;
}

int moves() {
  Rank rank;
  const int size = rank.world->size(), own_rank = rank.world->rank();
  for (const int64_t numel : {int64_t{1}, int64_t{4099}, int64_t{3'000'001}}) {
    const std::vector<std::byte> own = values_of(own_rank, numel, DType::f32);
    const auto shard = rank.slab_of(own);
    const auto whole = rank.slab_of(std::vector<std::byte>(own.size() * static_cast<size_t>(size)));
    rank.channel
        ->all_gather({.subject = {"gather", "test"},
                      .shard = shard->data(),
                      .whole = whole->data(),
                      .shard_nbytes = own.size(),
                      .keep = nullptr})
        .wait();
    const std::vector<std::byte> gathered = rank.read(*whole);
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<std::byte> expected = values_of(peer, numel, DType::f32);
      EXPECT_EQ(std::memcmp(gathered.data() + static_cast<size_t>(peer) * own.size(), expected.data(), own.size()), 0);
    }
    // Slice d of rank r is rank r's values turned by d bytes: everyone knows what it must get.
    Exchange exchange;
    exchange.subject = {"exchange", "test"};
    exchange.slices = whole->data();
    exchange.slice_nbytes = own.size();
    const auto received = rank.slab_of(std::vector<std::byte>(whole->nbytes()));
    exchange.received = received->data();
    rank.channel->exchange(exchange).wait();
    const std::vector<std::byte> got = rank.read(*received);
    const std::vector<std::byte> mine = values_of(own_rank, numel, DType::f32);
    for (int peer = 0; peer < size; ++peer) {
      EXPECT_EQ(std::memcmp(got.data() + static_cast<size_t>(peer) * own.size(), mine.data(), own.size()), 0);
    }
    const int root = size - 1;
    const auto told = rank.slab_of(own);
    rank.channel
        ->broadcast(
            {.subject = {"tell", "test"}, .data = told->data(), .nbytes = own.size(), .root = root, .keep = nullptr})
        .wait();
    EXPECT_EQ(rank.read(*told), values_of(root, numel, DType::f32));
  }
  say("moves are right");
  return 0;
}

// Both channels of an engine full of collectives that nobody waits for: a kernel that waits must not keep out the one
// that it waits for.
int both_channels() {
  Rank rank;
  const auto weights = full(*rank.world).device_channel("weights", gpu().index(), rank.queue->stream());
  const auto gradients = full(*rank.world).device_channel("gradients", gpu().index(), rank.queue->stream());
  constexpr int64_t kNumel = 100'003;
  const std::vector<std::byte> own = values_of(rank.world->rank(), kNumel, DType::f32);
  const auto shard = rank.slab_of(own);
  const size_t whole_nbytes = own.size() * static_cast<size_t>(rank.world->size());
  const auto whole = rank.slab_of(std::vector<std::byte>(whole_nbytes));
  const auto leaf = rank.slab_of(values_of(rank.world->rank(), kNumel * rank.world->size(), DType::f32));
  const auto sum = rank.slab_of(std::vector<std::byte>(own.size()));
  std::vector<Handle> handles;
  for (int round = 0; round < 60; ++round) {
    handles.push_back(weights->all_gather({.subject = {"gather", fmt::format("block.{}", round)},
                                           .shard = shard->data(),
                                           .whole = whole->data(),
                                           .shard_nbytes = own.size(),
                                           .keep = nullptr}));
    ReduceScatter args;
    args.subject = {"reduce", fmt::format("block.{}", round)};
    args.whole = leaf->data();
    args.shard = sum->data();
    args.shard_numel = kNumel;
    args.piece_numel = kNumel;  // of all strips: as many pieces as ranks
    handles.push_back(gradients->reduce_scatter(args));
  }
  for (const Handle& handle : handles) handle.wait_over();
  say("both channels ended");
  return 0;
}

int refused() {
  Rank rank;
  return 0;
}

class NcclCollectives : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SHOAL_NEEDS_GPU(); }
  void expect_said(const std::string& mode, const std::string& line, int world) {
    for (const Outcome& outcome : Ranks(gpu_ranks(world, mode, "nccl")).wait()) {
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr(line));
    }
  }
};

TEST_P(NcclCollectives, SumsHaveTheBitsOfTheHostsInOnePieceAndInMany) {
  expect_said("sums", "sums are right", GetParam());
}
TEST_P(NcclCollectives, GathersExchangesAndBroadcastsBringEveryByte) {
  expect_said("moves", "moves are right", GetParam());
}
TEST_P(NcclCollectives, BothChannelsAtOnceComeToAnEnd) {
  expect_said("both_channels", "both channels ended", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclCollectives, ::testing::Values(2, 3, 4, 8),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

TEST(NcclChoice, RanksOfOneGpuThatNcclDoesNotTakeAreToldHow) {
  SHOAL_NEEDS_GPU();
  RanksOptions options = gpu_ranks(2, "refused", "staged");
  options.env["SHOAL_TRANSPORT"] = "nccl";
  for (const Outcome& outcome : Ranks(options).wait()) {
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output,
                HasSubstr("[config shoal.transport] nccl takes no two ranks on one GPU, and ranks 0 and "
                          "1 share one. Give each a GPU of its own; or start them by `shoal launch "
                          "--share-gpu`"));
  }
}

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) {
  using namespace shoal::testing;
  return rank_main(argc, argv,
                   {{"sums", sums}, {"moves", moves}, {"both_channels", both_channels}, {"refused", refused}});
}
