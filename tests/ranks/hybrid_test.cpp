// Groups of ranks that hold a copy of the model each, and second copies inside groups: the losses, norms, decisions and
// weights of one rank, to the bit, and memory by the plan. (Full sharding: every_world_test.cpp. Bytes by link:
// planned_traffic_test.cpp.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "test_size.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

constexpr int kLeaves = 12;

struct Row {
  std::string name;
  int world = 4;
  std::function<void(RunOptions&, const std::string& folder)> change = {};
  int stage = 3;
  Precision precision = Precision::fp32;
  int64_t group = 0;
};

using Change = std::function<void(RunOptions&, const std::string&)>;

Change groups_of(int ranks) {
  return [ranks](RunOptions& options, const std::string&) { options.shard_size = ranks; };
}
Change second_in(int ranks) {
  return [ranks](RunOptions& options, const std::string&) { options.second_copy = ranks; };
}
// Groups of all ranks of two hosts, gathered host by host.
Change over_hosts(int ranks, int in_host) {
  return [=](RunOptions& options, const std::string&) {
    options.shard_size = ranks;
    options.hierarchical = true;
    for (int rank = 0; rank < 6; ++rank) options.hosts.push_back(rank / in_host);
  };
}

void as_it_is(RunOptions&, const std::string&) {}
void unclipped(RunOptions& options, const std::string&) { options.clip = false; }
void recomputed(RunOptions& options, const std::string&) { options.recompute = true; }
void without_overlap(RunOptions& options, const std::string&) { options.overlap = false; }
void in_host(RunOptions& options, const std::string&) { options.offload.tier = Tier::host; }
void on_disk(RunOptions& options, const std::string& folder) {
  options.offload = {.tier = Tier::disk, .nvme_path = folder};
}
void ahead(RunOptions& options, const std::string&) {
  options.offload.tier = Tier::host;
  options.speculative = true;
}
void deferred(RunOptions& options, const std::string&) { options.defer = true; }
void weights_in_host(RunOptions& options, const std::string&) { options.weights_tier = Tier::host; }
void weights_on_disk(RunOptions& options, const std::string& folder) {
  options.weights_tier = Tier::disk;
  options.weights_path = folder;
}
void all_gathered(RunOptions& options, const std::string&) { options.persistence_threshold = 0; }
void by_lamb(RunOptions& options, const std::string&) { options.optimizer = OptimizerKind::lamb; }

Change both(const Change& one, const Change& other) {
  return [=](RunOptions& options, const std::string& folder) {
    one(options, folder);
    other(options, folder);
  };
}

std::vector<Row> rows() {
  if (!tests_are_whole()) {
    return {{"fp32_2x2", 4, groups_of(2)},
            {"bf16_2x3_disk", 6, both(groups_of(3), on_disk), 3, Precision::bf16},
            {"bf16_2x2_stage1_lamb", 4, both(groups_of(2), by_lamb), 1, Precision::bf16},
            {"bf16_2x3_sums_of_3", 6, groups_of(3), 3, Precision::bf16, 3},
            {"fp16_second_in_2", 4, second_in(2), 3, Precision::fp16},
            {"bf16_second_in_3_deferred", 6, both(second_in(3), deferred), 3, Precision::bf16},
            {"bf16_over_hosts", 6, over_hosts(6, 2), 3, Precision::bf16}};
  }
  struct Mesh {
    std::string name;
    int world;
    Change change;
    bool whole_stages = true;  // also at stages 1 and 2
    bool offloads_weights = true;
  };
  const std::vector<Mesh> meshes = {{"2x2", 4, groups_of(2)},
                                    {"2x3", 6, groups_of(3)},
                                    {"3x2", 6, groups_of(2)},
                                    {"4x1", 4, groups_of(1)},
                                    {"1x4", 4, groups_of(4)},
                                    {"over_hosts", 6, over_hosts(6, 3), false},
                                    {"second_in_2_of_4", 4, second_in(2), false, false},
                                    {"second_in_2_of_6", 6, second_in(2), false, false},
                                    {"second_in_3_of_6", 6, second_in(3), false, false},
                                    {"second_in_all", 4, second_in(4), false, false}};
  const std::vector<std::pair<std::string, Change>> changes = {{"", as_it_is},
                                                               {"_unclipped", unclipped},
                                                               {"_recomputed", recomputed},
                                                               {"_no_overlap", without_overlap},
                                                               {"_host", in_host},
                                                               {"_disk", on_disk},
                                                               {"_ahead", ahead},
                                                               {"_deferred", deferred},
                                                               {"_gathered", all_gathered}};
  std::vector<Row> all;
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const Mesh& mesh : meshes) {
      for (int stage = mesh.whole_stages ? 1 : 3; stage <= 3; ++stage) {
        const std::string name = fmt::format("{}_{}_stage{}", name_of(precision), mesh.name, stage);
        for (const auto& [what, change] : changes) {
          all.push_back({name + what, mesh.world, both(mesh.change, change), stage, precision});
        }
        for (const int64_t group : {2, 3, 5}) {
          all.push_back(
              {fmt::format("{}_groups_of_{}", name, group), mesh.world, mesh.change, stage, precision, group});
        }
        if (precision != Precision::fp16) {
          all.push_back({name + "_lamb", mesh.world, both(mesh.change, by_lamb), stage, precision});
        }
        if (stage < 3 || !mesh.offloads_weights) continue;
        all.push_back({name + "_weights_host", mesh.world, both(mesh.change, weights_in_host), stage, precision});
        all.push_back({name + "_weights_disk", mesh.world, both(mesh.change, weights_on_disk), stage, precision});
      }
    }
  }
  return all;
}

RunOptions options_of(const Row& row, const std::string& folder) {
  RunOptions options;
  options.precision = row.precision;
  options.stage = row.stage;
  options.leaves = kLeaves;
  options.fold_group = row.group;
  options.evaluate_every = 4;
  options.steps = 10;
  if (row.change) row.change(options, folder);
  return options;
}

std::vector<double> losses_of(const std::vector<RunResult>& ranks) {
  std::vector<double> losses;
  for (size_t i = 0; i < ranks[0].losses.size(); ++i) {
    for (const RunResult& rank : ranks) losses.push_back(rank.losses[i]);
  }
  return losses;
}

void expect_planned_memory(const MemoryReport& memory) {
  EXPECT_EQ(memory.held.weights, memory.planned.weights);
  EXPECT_EQ(memory.held.second_weights, memory.planned.second_weights);
  EXPECT_EQ(memory.held.gradients, memory.planned.gradients);
  EXPECT_EQ(memory.held.states, memory.planned.states);
  // Slots grow where ranks leave units out and a busy machine is late: plan_matches_engine_test counts them.
  EXPECT_GE(memory.held.reduce_slots, memory.planned.reduce_slots);
  EXPECT_EQ(memory.held.host_states, memory.planned.host_states);
  EXPECT_EQ(memory.held.host_weights, memory.planned.host_weights);
  EXPECT_EQ(memory.held.disk_states, memory.planned.disk_states);
  EXPECT_EQ(memory.held.disk_weights, memory.planned.disk_weights);
}

class Hybrid : public ::testing::TestWithParam<Row> {};

TEST_P(Hybrid, HasTheBitsOfOneRankAndTheMemoryOfThePlan) {
  const TempFolder folder;
  const RunOptions options = options_of(GetParam(), folder.path());
  RunOptions plain = options;
  plain.shard_size = -1;
  plain.second_copy = 1;
  plain.hierarchical = false;
  plain.hosts.clear();
  const std::vector<RunResult> alone = train_on_threads(1, plain);
  EXPECT_FALSE(alone[0].applied[7]) << "the forced overflow was applied";
  const std::vector<RunResult> ranks = train_on_threads(GetParam().world, options);
  EXPECT_EQ(RunResult::bits(losses_of(ranks)), RunResult::bits(alone[0].losses));
  EXPECT_EQ(RunResult::bits(ranks[0].norms), RunResult::bits(alone[0].norms));
  EXPECT_EQ(ranks[0].applied, alone[0].applied);
  for (const RunResult& rank : ranks) {
    EXPECT_TRUE(rank.weights == alone[0].weights);
    expect_planned_memory(rank.memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, Hybrid, ::testing::ValuesIn(rows()), [](const auto& info) { return info.param.name; });

RunOptions on_two_hosts() {
  RunOptions options = options_of({"", 4, groups_of(2), 3, Precision::bf16}, "");
  options.persistence_threshold = 0;
  return options;
}

TEST(HybridMemory, AGroupHoldsWhatAWorldOfItsSizeWould) {
  const RunOptions options = on_two_hosts();
  RunOptions full = options;
  full.shard_size = -1;
  const MemoryPlan hybrid = train_on_threads(4, options)[0].memory.held;
  const MemoryPlan all = train_on_threads(4, full)[0].memory.held;
  EXPECT_EQ(hybrid.weights, 2 * all.weights);
  EXPECT_EQ(hybrid.gradients, 2 * all.gradients);
  EXPECT_EQ(hybrid.states, 2 * all.states);
  EXPECT_EQ(hybrid.second_weights, 0u);
}

TEST(HybridMemory, ASecondCopyIsAllThatIsAdded) {
  RunOptions options = on_two_hosts();
  options.shard_size = -1;
  const MemoryPlan all = train_on_threads(4, options)[0].memory.held;
  options.second_copy = 2;
  const MemoryPlan second = train_on_threads(4, options)[0].memory.held;
  EXPECT_EQ(second.weights, all.weights);
  EXPECT_EQ(second.gradients, all.gradients);
  EXPECT_EQ(second.states, all.states);
  EXPECT_EQ(second.second_weights, 2 * all.weights);
}

}  // namespace
}  // namespace shoal::testing
