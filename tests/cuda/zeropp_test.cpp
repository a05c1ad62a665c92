// Weights and gradients that travel in few bits (ZeRO++) between ranks on one GPU: the same bits when run again, at
// every stage and tier that has them, and whether bytes stay on the GPU (ranks as threads) or go through host memory;
// memory by the plan. (Over NCCL: nccl/training_test.cpp. On CPUs: ranks/zeropp_test.cpp. The kernels:
// kernels/blocks_test.cpp.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "comm/host/board_carrier.h"
#include "comm/host/shm_board.h"
#include "comm/world/channel_group.h"
#include "cuda/torch_gpu.h"
#include "training/matrix_run.h"
#include "unit/comm/memory_store.h"
#include "unit/comm/rank_threads.h"

namespace shoal::testing {
namespace {

constexpr int kWorld = 4;

using Change = std::function<void(RunOptions&)>;

RunOptions run_options(const Change& change) {
  RunOptions options;
  options.stage = 3;
  options.precision = Precision::bf16;
  options.device = gpu();
  options.leaves = 2 * kWorld;
  options.evaluate_every = 4;
  options.steps = 9;
  options.persistence_threshold = 20;  // few stay whole
  change(options);
  return options;
}

void in_int8(RunOptions& options) { options.quantized_weights = true; }

// On two hosts of two ranks.
Change gradients_in(int bits, int stage = 3) {
  return [=](RunOptions& options) {
    options.stage = stage;
    options.quantized_gradient_bits = bits;
    options.hosts = {0, 0, 1, 1};
  };
}

Change with(const Change& change, const Change& more) {
  return [=](RunOptions& options) {
    change(options);
    more(options);
  };
}

// Ranks that meet as processes do, although they are threads: their GPU memory goes through the hosts'.
std::vector<RunResult> train_staged(const RunOptions& options) {
  find_math();
  const auto store = std::make_shared<MemoryStore>();
  Groups groups;
  for (int rank = 0; rank < kWorld; ++rank) {  // rank 0 first: it makes the segments that the others map
    ShmWorld::Options of_world;
    of_world.rank = rank;
    of_world.timeout = std::chrono::seconds(60);
    of_world.pids.assign(kWorld, getpid());
    of_world.store = store;
    of_world.hosts = options.hosts;
    auto board = std::make_unique<ShmBoard>(std::make_shared<ShmWorld>(of_world));
    groups.push_back(std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::move(board))));
  }
  std::vector<RunResult> results(kWorld);
  run_ranks(std::move(groups), [&](Group& group) {
    const std::string way = full(group).device_channel("probe", gpu().index(), nullptr)->transport_name();
    EXPECT_EQ(way, "GPU, through shared memory");
    results[static_cast<size_t>(group.rank())] = train(group, options);
  });
  return results;
}

void expect_same(const std::vector<RunResult>& ranks, const std::vector<RunResult>& others, const char* what) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_TRUE(ranks[rank] == others[rank]) << what << ", rank " << rank;
  }
}

void expect_planned_memory(const std::vector<RunResult>& ranks) {
  for (const RunResult& rank : ranks) {
    EXPECT_EQ(rank.memory.held.weights, rank.memory.planned.weights);
    EXPECT_EQ(rank.memory.held.second_weights, rank.memory.planned.second_weights);
    EXPECT_EQ(rank.memory.held.gradients, rank.memory.planned.gradients);
    EXPECT_EQ(rank.memory.held.states, rank.memory.planned.states);
    EXPECT_GE(rank.memory.held.reduce_slots, rank.memory.planned.reduce_slots);
  }
}

// Runs it twice and staged, and returns the first.
std::vector<RunResult> repeatable(const Change& change) {
  const RunOptions options = run_options(change);
  const std::vector<RunResult> first = train_on_threads(kWorld, options);
  EXPECT_FALSE(first[0].applied[7]) << "the forced overflow was applied";
  expect_planned_memory(first);
  expect_same(train_on_threads(kWorld, options), first, "again");
  const std::vector<RunResult> staged = train_staged(options);
  expect_same(staged, first, "staged");
  expect_planned_memory(staged);
  return first;
}

std::string norms_of(const std::vector<RunResult>& ranks) { return RunResult::bits(ranks[0].norms); }

TEST(GpuZeropp, WeightsInInt8AreRepeatableOnEveryMeshAndTier) {
  SHOAL_NEEDS_GPU();
  const std::vector<RunResult> first = repeatable(in_int8);
  EXPECT_NE(norms_of(first), norms_of(train_on_threads(kWorld, run_options([](RunOptions&) {})))) << "exact";
  const std::vector<std::pair<const char*, Change>> others = {
      {"a second copy", [](RunOptions& o) { o.second_copy = 2; }},
      {"groups", [](RunOptions& o) { o.shard_size = 2; }},
      {"weights on the host", [](RunOptions& o) { o.weights_tier = Tier::host; }},
      {"recomputed", [](RunOptions& o) { o.recompute = true; }},
      {"no overlap", [](RunOptions& o) { o.overlap = false; }}};
  for (const auto& [name, change] : others) {
    SCOPED_TRACE(name);
    expect_same(repeatable(with(in_int8, change)), first, name);
  }
}

TEST(GpuZeropp, GradientsInFewBitsAreRepeatableAndEqualAtStages2And3) {
  SHOAL_NEEDS_GPU();
  std::vector<std::string> norms;
  for (const int bits : {4, 8}) {
    SCOPED_TRACE(bits);
    const std::vector<RunResult> at_3 = repeatable(gradients_in(bits));
    expect_same(repeatable(gradients_in(bits, 2)), at_3, "stage 2");
    norms.push_back(norms_of(at_3));
  }
  EXPECT_NE(norms[0], norms[1]);
  EXPECT_NE(norms[1], norms_of(train_on_threads(kWorld, run_options([](RunOptions&) {})))) << "exact";
}

TEST(GpuZeropp, ErrorFeedbackIsRepeatableAndEqualAtStages2And3) {
  SHOAL_NEEDS_GPU();
  const auto feeds_back = [](RunOptions& options) { options.error_feedback = 0.8; };
  const std::vector<RunResult> at_3 = repeatable(with(gradients_in(4), feeds_back));
  expect_same(repeatable(with(gradients_in(4, 2), feeds_back)), at_3, "stage 2");
  EXPECT_NE(norms_of(at_3), norms_of(train_on_threads(kWorld, run_options(gradients_in(4))))) << "without errors";
}

TEST(GpuZeropp, AllOfItTogetherWithStatesAndGradientsOnTheHost) {
  SHOAL_NEEDS_GPU();
  const auto all = with(gradients_in(4), [](RunOptions& options) {
    options.quantized_weights = true;
    options.second_copy = 2;
  });
  const std::vector<RunResult> first = repeatable(all);
  expect_same(repeatable(with(all,
                              [](RunOptions& options) {
                                options.weights_tier = options.offload.tier = Tier::host;
                                options.offload_update = OffloadUpdate::host;
                                options.offload_gradients = OffloadGradients::on;
                              })),
              first, "on the host");
}

// A loss scale must see the overflow of one host through the blocks of its sums.
TEST(GpuZeropp, AnOverflowInFp16IsSeenThroughBlocks) {
  SHOAL_NEEDS_GPU();
  const std::vector<RunResult> ranks = repeatable(with(gradients_in(4), [](RunOptions& options) {
    options.precision = Precision::fp16;
    options.quantized_weights = true;
  }));
  for (const RunResult& rank : ranks) EXPECT_TRUE(rank.applied[8]);
}

}  // namespace
}  // namespace shoal::testing
