#include "shard/quantized_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "device/host_queue.h"
#include "shard/carry.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

float leaf_of(int rank, int64_t at) { return std::sin(static_cast<float>(at) * 0.37f + static_cast<float>(rank)); }

struct Played {
  std::vector<float> sum;  // the whole, put together from the ranks
  std::vector<float> expected;
};

// One reduction over the mesh, of 3 blocks a rank; `odd` may change a leaf.
Played reduce_on(const Mesh& mesh, int bits, int64_t piece_numel, float odd = 0) {
  FlatLayout flat;
  flat.numel = 3 * 128 * mesh.world();
  cut_evenly(flat, mesh);
  const auto leaf = [&](int rank, int64_t at) { return rank == 0 && at == 5 && odd != 0 ? odd : leaf_of(rank, at); };
  const int replicas = mesh.size_of(kReplica), in_group = mesh.size_of(kShard);
  Played played{std::vector<float>(static_cast<size_t>(flat.numel)),
                std::vector<float>(static_cast<size_t>(flat.numel))};
  // The plain way: each group's sum, quantized as a whole, added in the order of groups, upon what was there.
  for (float& each : played.expected) each = 0.5f;
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<float> sum(static_cast<size_t>(flat.numel));
    for (int64_t at = 0; at < flat.numel; ++at) {
      float of_group = leaf(replica * in_group, at);
      for (int rank = 1; rank < in_group; ++rank) of_group += leaf(replica * in_group + rank, at);
      sum[static_cast<size_t>(at)] = of_group;
    }
    std::vector<std::byte> blocks(Wire{DType::f32, bits}.nbytes(flat.numel));
    kernels::quantize(sum.data(), DType::f32, flat.numel, bits, blocks.data());
    kernels::dequantize(blocks.data(), bits, sum.data(), DType::f32, flat.numel);
    for (size_t at = 0; at < sum.size(); ++at) played.expected[at] += sum[at];
  }
  for (float& each : played.expected) each *= 0.25f;
  testing::run_ranks(mesh.world(), [&](Group& group) {
    const Cut mine = Cuts(mesh, group.rank(), 3).own(flat);
    std::vector<float> whole, part(static_cast<size_t>(mine.numel()), 0.5f);
    for (int64_t at = 0; at < flat.numel; ++at) whole.push_back(leaf(group.rank(), at));
    const Route route = reduce_route(flat, mesh, {DType::f32}, Travel::sums, {DType::f32, bits});
    const auto sums = Slab::create(sums_nbytes(route), Slab::Backing::anonymous, std::make_shared<Ledger>(),
                                   MemoryKind::reduce_slots);
    bool came_after = false;
    ReduceScatter args;
    args.subject = {"reduce", "u"};
    args.whole = whole.data();
    args.shard = part.data();
    args.carry = 1;
    args.post = 0.25f;
    args.piece_numel = piece_numel;
    args.after = [&] { came_after = true; };
    const AxisGroups groups(group, mesh);
    const std::unique_ptr<Queue> queue = make_host_queue();
    carry_reduce(route, groups, std::move(args), {sums, queue.get()}).wait();
    EXPECT_TRUE(came_after);
    EXPECT_EQ(groups.traffic().sent_nbytes, sent_nbytes(route));
    std::copy(part.begin(), part.end(), played.sum.begin() + mine.begin);  // parts of ranks do not overlap
  });
  return played;
}

TEST(QuantizedSums, AreThoseOfGroupsQuantizedAndAddedInTheirOrder) {
  for (const auto& [replicas, shards] : {std::pair{2, 2}, {2, 3}, {3, 2}, {4, 1}}) {
    const Mesh mesh({{.name = "replica", .size = replicas}, {.name = "shard", .size = shards}});
    for (const int bits : {8, 4}) {
      for (const int64_t piece : {0, 130}) {
        const Played played = reduce_on(mesh, bits, piece);
        EXPECT_EQ(played.sum, played.expected) << mesh.to_text() << ", int" << bits << ", pieces of " << piece;
      }
    }
  }
}

TEST(QuantizedSums, OneLeafThatIsNotFiniteShowsInTheSum) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}});
  const Played played = reduce_on(mesh, 4, 0, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(played.sum[5]));
  EXPECT_TRUE(std::isfinite(played.sum[128]));
}

TEST(QuantizedSums, PartsThatAreNoWholeBlocksAreRefused) {
  const std::unique_ptr<Group> alone = make_single_group();
  const auto sums = Slab::create(4096, Slab::Backing::anonymous, std::make_shared<Ledger>(), MemoryKind::reduce_slots);
  const Hop hop{.part_numel = 100, .wire = {DType::f32, 4}};
  EXPECT_THROW(exchange_quantized(hop, *alone, {}, {sums}), BrokenPromise);
}

}  // namespace
}  // namespace shoal
