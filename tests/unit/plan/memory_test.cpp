#include "plan/memory.h"

#include <gtest/gtest.h>

#include "layout/cut.h"
#include "plan/save_memory.h"
#include "plan/state_chunks.h"
#include "plan/traffic.h"

namespace shoal {
namespace {

// Three units of 1024, 2048 and 1024 elements; every parameter large, so that nothing is persistent.
ModelLayout three_units(int world, DType dtype) {
  return lay_out(
      {{"a", {{"w", {1024}, dtype}}, {}}, {"b", {{"w", {2048}, dtype}}, {}}, {"c", {{"w", {1024}, dtype}}, {}}},
      {.mesh = world, .persistence_threshold = 0});
}

MemoryPlan plan(int stage, int world, DType dtype, int64_t accumulation = 1) {
  MemoryOptions options;
  options.gradients.stage = stage;
  options.gradients.accumulation_steps = accumulation;
  return plan_memory(three_units(world, dtype), options);
}

TEST(MemoryPlan, Bf16WithTheSplitMasterTakes14BytesAParameterAtStage0) {
  const MemoryPlan stage0 = plan(0, 4, DType::bf16);
  EXPECT_EQ(stage0.weights, 4096u * 2);
  EXPECT_EQ(stage0.gradients, 4096u * 2);
  EXPECT_EQ(stage0.states, 4096u * 10);
  EXPECT_EQ(stage0.model_states(), 4096u * 14);
}

TEST(MemoryPlan, EachStageDividesOneThingMoreByTheWorld) {
  const size_t numel = 4096;
  EXPECT_EQ(plan(1, 4, DType::bf16).model_states(), numel * 4 + numel * 10 / 4);
  EXPECT_EQ(plan(2, 4, DType::bf16).model_states(), numel * 2 + numel * 12 / 4);
  EXPECT_EQ(plan(3, 4, DType::bf16).model_states(), numel * 14 / 4);
  EXPECT_EQ(plan(3, 4, DType::f32).model_states(), numel * 16 / 4);
  EXPECT_EQ(plan(3, 4, DType::f16).model_states(), numel * 16 / 4);
}

TEST(MemoryPlan, OffloadedStatesAreCountedOnTheirTier) {
  MemoryOptions options;
  options.gradients.stage = 2;
  options.offload.tier = Tier::host;
  const ModelLayout layout = three_units(4, DType::bf16);
  EXPECT_EQ(plan_memory(layout, options).states, 0u);
  EXPECT_EQ(plan_memory(layout, options).host_states, 4096u * 10 / 4);
  options.offload.tier = Tier::disk;
  options.disk_buffers = 2;
  const MemoryPlan disk = plan_memory(layout, options);  // 256, 512 and 256 elements a rank: one, two and one pages
  EXPECT_EQ(disk.host_states, 0u);
  EXPECT_EQ(disk.disk_states, 4u * kDiskPage);
  EXPECT_EQ(disk.disk_buffers, kDiskPage + 2u * kDiskPage);
  EXPECT_EQ(disk.host_total(), disk.disk_buffers);
}

TEST(MemoryPlan, APictureOfASaveIsCountedWhereMemoryIsGivenForIt) {
  MemoryOptions options;
  const ModelLayout layout = three_units(4, DType::bf16);
  EXPECT_EQ(plan_memory(layout, options).save_pictures, 0u) << "it takes what is free";
  options.save_memory = size_t{1} << 40;
  const size_t whole =
      plan_memory(layout, options).save_pictures;  // a master and two moments, each piece in whole pages
  EXPECT_GE(whole, 4096u * 12 / 4);
  EXPECT_EQ(whole, saved_nbytes(layout, options.offload));
  EXPECT_EQ(plan_memory(layout, options).host_total(), whole);
  const ModelLayout large = lay_out({{"a", {{"w", {4 << 20}, DType::f32}}, {}}}, {.mesh = 1});
  options.save_memory = 1;
  EXPECT_EQ(plan_memory(large, options).save_pictures, kLeastPicture) << "what the saver takes then";
  ChunkOptions narrow = options.offload;
  narrow.narrow_masters = true;
  narrow.moment_dtype = DType::bf16;
  EXPECT_LT(saved_nbytes(layout, narrow), whole);
}

TEST(MemoryPlan, GradientsThatAreReceivedBeforeTheyAreAddedTakeTheLargestFlatsBuffers) {
  MemoryOptions options;
  options.gradients.stage = 2;
  const ModelLayout layout = three_units(4, DType::bf16);
  const size_t without = plan_memory(layout, options).reduce_slots;
  options.receives_gradients = true;
  EXPECT_EQ(plan_memory(layout, options).reduce_slots, without + 3 * 512u * 2) << "a strip of each other rank";
  options.receive_numel = 1024;
  EXPECT_EQ(plan_memory(layout, options).reduce_slots, without + 2 * 3 * 256u * 2) << "two buffers of half the strips";
  EXPECT_EQ(plan_memory(three_units(1, DType::bf16), options).reduce_slots,
            plan_memory(three_units(1, DType::bf16), MemoryOptions{.gradients = options.gradients}).reduce_slots);
}

// Between replicas sums come in blocks, beside those that were sent: no buffer is for them.
TEST(MemoryPlan, SumsInBlocksAreReceivedWhereSumsAre) {
  MemoryOptions options;
  options.gradients.stage = 3;
  options.receives_gradients = true;
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}});
  const ModelLayout layout = lay_out({{.name = "u", .params = {{"p", {4096}, DType::bf16, true, 0}}, .borrows = {}}},
                                     {.mesh = mesh, .persistence_threshold = 0});
  options.gradients.sum_bits = 8;
  const size_t leaves = 1 * 2048u * 2, sums = 2048u * 4;
  EXPECT_EQ(receive_nbytes(layout, options), leaves) << "of the other rank of the group";
  EXPECT_EQ(sums_nbytes(layout, options.gradients), sums);
  const size_t with = plan_memory(layout, options).reduce_slots;
  options.receives_gradients = false;
  EXPECT_EQ(with - plan_memory(layout, options).reduce_slots, leaves);
}

TEST(MemoryPlan, GradientsOfWhatTheHostUpdatesMayWaitInItsMemory) {
  MemoryOptions options;
  options.gradients.stage = 2;
  options.offload.tier = Tier::host;
  options.on_gpu = true;
  const ModelLayout layout = three_units(4, DType::bf16);
  EXPECT_EQ(plan_memory(layout, options).host_gradients, 0u);
  options.host_gradients = true;
  MemoryPlan plan = plan_memory(layout, options);
  const size_t slots = 2 * 2048u * 2;  // of the largest unit
  EXPECT_EQ(plan.gradients, 0u);
  EXPECT_EQ(plan.host_gradients, 4096u * 2 / 4);
  EXPECT_EQ(plan.host_total(), plan.host_gradients + plan.host_states);
  EXPECT_EQ(plan.reduce_slots, slots + 2 * 512u * 2) << "two berths";
  options.gradients.accumulation_steps = 2;
  EXPECT_EQ(plan_memory(layout, options).reduce_slots, slots + 3 * 512u * 4) << "three, and fp32";
  options.gradients.accumulation_steps = 1;
  options.state_ring = 1;
  EXPECT_EQ(plan_memory(layout, options).host_gradients, 0u) << "the GPU updates";
  options.state_ring = 0;
  options.offload.ratio = 0.5;
  plan = plan_memory(layout, options);
  EXPECT_GT(plan.gradients, 0u) << "of states on the GPU";
  EXPECT_GT(plan.host_gradients, 0u);
  EXPECT_EQ(plan.gradients + plan.host_gradients, 4096u * 2 / 4);
}

TEST(MemoryPlan, StatesThatAreUpdatedAheadHaveTwoPlacesInHostMemoryAndSoHaveTheirWeights) {
  MemoryOptions options;
  options.gradients.stage = 2;
  options.offload.tier = Tier::host;
  const ModelLayout layout = three_units(4, DType::bf16);
  const size_t once = plan_memory(layout, options).host_states;
  options.spare_states = true;
  EXPECT_EQ(plan_memory(layout, options).host_states, 2 * once + 4096u * 2 / 4);
  options.offload.tier = Tier::disk;
  EXPECT_EQ(plan_memory(layout, options).host_states, 0u);
}

TEST(MemoryPlan, WeightsThatTheHostUpdatesWhereTheyAreDoNotComeToTheGpuForIt) {
  MemoryOptions options;
  options.gradients.stage = 3;
  options.on_gpu = true;
  options.shards.tier = Tier::host;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).state_ring, kFetchedSlots * 512u * 2)
      << "pieces of the largest flat";
  options.offload.tier = Tier::host;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).state_ring, 0u);
  options.shards.tier = Tier::disk;
  options.shards.max_in_host = 0;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).state_ring, 0u);
  options.offload.ratio = 0.5;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).state_ring, kFetchedSlots * 512u * 2)
      << "the GPU updates some of them";
  options.shards.ratio = 0;
  options.shards.tier = Tier::host;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).state_ring, 0u) << "none is away";
}

TEST(MemoryPlan, ALargeFlatComesInPieces) {
  MemoryOptions options;
  options.gradients.stage = 3;
  options.on_gpu = true;
  options.shards.tier = Tier::host;
  const ModelLayout layout =
      lay_out({{.name = "u", .params = {{"p", {100 << 20}, DType::bf16, true, 0}}, .borrows = {}}},
              {.mesh = 1, .persistence_threshold = 0});
  EXPECT_EQ(plan_memory(layout, options).state_ring, size_t{32} << 20);
  options.offload.chunk_numel = 1 << 20;
  EXPECT_EQ(plan_memory(layout, options).state_ring, size_t{8} << 20) << "of half a chunk";
}

TEST(MemoryPlan, ShardedWeightsMayLieInHostMemory) {
  MemoryOptions options;
  options.gradients.stage = 3;
  options.shards.tier = Tier::host;
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).weights, 0u);
  EXPECT_EQ(plan_memory(three_units(4, DType::bf16), options).host_weights, 4096u * 2 / 4);
}

TEST(MemoryPlan, ShardedWeightsOnDiskPassThroughBuffersAndTheArena) {
  MemoryOptions options;
  options.gradients.stage = 3;
  options.shards = {.tier = Tier::disk, .max_in_host = 256, .buffers = 5};
  MemoryPlan plan = plan_memory(three_units(4, DType::bf16), options);
  EXPECT_EQ(plan.weights, 0u);
  EXPECT_EQ(plan.host_weights, 256u * 2);
  EXPECT_EQ(plan.disk_weights, 2u * kDiskPage);
  EXPECT_EQ(plan.disk_buffers, 2u * kDiskPage);
  EXPECT_EQ(plan.disk_total(), plan.disk_weights);
  // In a world of one too, where resident shards are attached as they are.
  plan = plan_memory(three_units(1, DType::bf16), options);
  EXPECT_EQ(plan.gather_arena, kArenaGranule);
  EXPECT_EQ(plan.disk_weights, 3u * kDiskPage);
  options.shards.max_in_host = 4096;
  EXPECT_EQ(plan_memory(three_units(1, DType::bf16), options).gather_arena, 0u);
  EXPECT_EQ(plan_memory(three_units(1, DType::bf16), options).disk_buffers, 0u);
}

TEST(MemoryPlan, AccumulationKeepsFp32Gradients) {
  EXPECT_EQ(plan(0, 2, DType::bf16, 3).gradients, 4096u * 4);
  EXPECT_EQ(plan(2, 2, DType::bf16, 3).gradients, 4096u * 4 / 2);
}

TEST(MemoryPlan, FrozenParametersCostTheirWeightsOnly) {
  const ModelLayout layout =
      lay_out({{"u", {{"w", {1024}, DType::bf16, false}}, {}}}, {.mesh = 2, .persistence_threshold = 0});
  MemoryOptions options;
  options.gradients.stage = 3;
  const MemoryPlan got = plan_memory(layout, options);
  EXPECT_EQ(got.weights, 1024u);
  EXPECT_EQ(got.gradients + got.states + got.reduce_slots, 0u);
}

TEST(MemoryPlan, ReduceSlotsHoldTheLargestUnitAndOnlyWhereGradientsPassThem) {
  EXPECT_EQ(plan(0, 2, DType::f32).reduce_slots, 0u);
  EXPECT_EQ(plan(2, 2, DType::f32).reduce_slots, 2u * 2048 * 4);
}

TEST(MemoryPlan, ArenaIsTheLargestLiveSet) {
  const ModelLayout layout = three_units(2, DType::f32);
  EXPECT_EQ(largest_live_nbytes(layout, 2, {}), 0u);
  EXPECT_EQ(largest_live_nbytes(layout, 3, {}), kArenaGranule);
  EXPECT_EQ(largest_live_nbytes(layout, 3, {.prefetch_numel = 2048}), 2 * kArenaGranule);
  EXPECT_EQ(largest_live_nbytes(layout, 3, {.prefetch_numel = 100'000}), 3 * kArenaGranule);
}

TEST(MemoryPlan, AWorldOfOneGathersNothingAndPassesNothingOn) {
  EXPECT_EQ(largest_live_nbytes(three_units(1, DType::f32), 3, {}), 0u);
  EXPECT_EQ(plan(3, 1, DType::bf16).reduce_slots, 0u);
  EXPECT_EQ(plan(3, 1, DType::bf16).total(), plan(0, 1, DType::bf16).total());
}

TEST(MemoryPlan, BucketsLargerThanTheModelCostNoMoreThanTheModel) {
  const ModelLayout layout = three_units(2, DType::f32);
  EXPECT_EQ(largest_live_nbytes(layout, 3, {.prefetch_numel = 500'000'000}), 3 * kArenaGranule);
}

TEST(MemoryPlan, TextNamesEveryKind) {
  EXPECT_EQ(to_text(MemoryPlan{1024, 2048, 10, 0, 5}),
            "weights                  1 KiB\ngradients                2 KiB\nstates                    10 B\n"
            "gather arena               0 B\nreduce slots               5 B\ntotal                3.015 KiB\n");
}

// A mesh of two hosts with two ranks each, weights cut inside a host, states over all four: laid out, planned and
// scheduled by the same code as a single axis.
Mesh two_by_two() { return Mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}}); }

const Stage kWide(3, {Over::shard, Over::world, Over::world});

ModelLayout two_units(const Mesh& mesh) {
  return lay_out({{"a", {{"a.w", {1000}, DType::bf16}}, {}}, {"b", {{"b.w", {1024}, DType::bf16}}, {}}},
                 {.mesh = mesh, .persistence_threshold = 0});
}

TEST(PlanMesh, LaysOutPartsOverTheShardAxisAndOverTheWorld) {
  EXPECT_EQ(to_text(two_units(two_by_two())),
            "world replica 2 x shard 2\n"
            "unit a\n"
            "  flat bf16 trainable numel 1024 shard 512 rank 256\n"
            "    param 0 at 0 numel 1000\n"
            "unit b\n"
            "  flat bf16 trainable numel 1024 shard 512 rank 256\n"
            "    param 0 at 0 numel 1024\n");
}

TEST(PlanMesh, CountsWeightsByTheHostAndStatesByTheWorld) {
  const ModelLayout layout = two_units(two_by_two());
  MemoryOptions options;
  options.gradients.stage = kWide;
  const MemoryPlan plan = plan_memory(layout, options);
  EXPECT_EQ(plan.weights, 2u * 512 * 2);
  EXPECT_EQ(plan.gradients, 2u * 256 * 2);
  EXPECT_EQ(plan.states, 2u * 256 * (8 + 2));
}

TEST(PlanMesh, StatesOfARankAreWithinItsWeights) {
  const ModelLayout layout = two_units(two_by_two());
  std::vector<int64_t> begins;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<StateChunk> chunks = cut_states(layout, {.stage = kWide, .rank = rank});
    const Cut weights = Cuts(layout.mesh, rank, kWide).weights(layout.units[0].flats[0]);
    EXPECT_LE(weights.begin, chunks[0].begin);
    EXPECT_GE(weights.end, chunks[0].end);
    begins.push_back(chunks[0].begin);
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 512, 256, 768}));
}

TEST(PlanMesh, CountsTrafficByAxis) {
  const StepTraffic traffic = plan_traffic(two_units(two_by_two()), {.stage = kWide}, {});
  constexpr uint64_t kUnits = 2, kBytes = 2;
  EXPECT_EQ(traffic.gathered, kUnits * 2 * 512 * kBytes);  // inside a host, forward and backward
  EXPECT_EQ(traffic.reduced, kUnits * 3 * 256 * kBytes);   // leaves, to all ranks at once
  EXPECT_EQ(traffic.published, kUnits * 256 * kBytes);     // between hosts
  EXPECT_EQ(traffic.by_axis.at("shard"), kUnits * 2 * 512 * kBytes);
  EXPECT_EQ(traffic.by_axis.at("replica"), kUnits * 256 * kBytes);
  EXPECT_EQ(traffic.by_axis.at("world"), kUnits * 3 * 256 * kBytes);
}

TEST(PlanMesh, SchedulesGathersAsOnOneAxis) {
  const ModelLayout layout = two_units(two_by_two());
  GatherLimits limits;
  limits.prefetch_numel = 1024;
  EXPECT_EQ(largest_live_nbytes(layout, kWide, limits), largest_live_nbytes(two_units(2), 3, limits));
}

}  // namespace
}  // namespace shoal
