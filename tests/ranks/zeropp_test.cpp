// Weights and gradients that travel in few bits (ZeRO++): repeatable, and equal to the bit at every stage, mesh and
// tier that has them; what is masters and checkpoints stays exact; memory by the plan. (Bytes by link:
// planned_traffic_test.cpp. Over processes: engine_hybrid_test.cpp. The blocks: unit/kernels/blocks_test.cpp.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "message_of.h"
#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "test_size.h"
#include "training/outcome.h"
#include "training/state_bits.h"

namespace shoal::testing {
namespace {

constexpr int kLeaves = 12;

std::vector<int> hosts_of(int world, int in_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / in_host);
  return hosts;
}

RunOptions plain_options(Precision precision = Precision::bf16) {
  RunOptions options;
  options.stage = 3;
  options.precision = precision;
  options.leaves = kLeaves;
  options.evaluate_every = 4;
  options.steps = 9;
  options.persistence_threshold = 20;  // few stay whole
  return options;
}

using Change = std::function<void(RunOptions&, const std::string& folder)>;

struct Variant {
  std::string name;
  int world = 4;
  Change change = {};
};

RunOptions changed(RunOptions options, const Variant& row, const std::string& folder) {
  if (row.change) row.change(options, folder);
  return options;
}

std::vector<double> all_losses(const std::vector<RunResult>& ranks) {
  std::vector<double> losses;
  for (size_t i = 0; i < ranks[0].losses.size(); ++i) {
    for (const RunResult& rank : ranks) losses.push_back(rank.losses[i]);
  }
  return losses;
}

void expect_same(const std::vector<RunResult>& ranks, const std::vector<RunResult>& others) {
  EXPECT_EQ(RunResult::bits(all_losses(ranks)), RunResult::bits(all_losses(others)));
  EXPECT_EQ(RunResult::bits(ranks[0].norms), RunResult::bits(others[0].norms));
  EXPECT_EQ(ranks[0].applied, others[0].applied);
  for (const RunResult& rank : ranks) EXPECT_TRUE(rank.weights == others[0].weights);
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

const RunOptions& weights_in_int8() {
  static const RunOptions options = [] {
    RunOptions made = plain_options();
    made.quantized_weights = true;
    return made;
  }();
  return options;
}

std::vector<Variant> variants_of_weights() {
  const auto groups = [](int ranks) { return [ranks](RunOptions& o, const std::string&) { o.shard_size = ranks; }; };
  const auto second = [](int ranks) { return [ranks](RunOptions& o, const std::string&) { o.second_copy = ranks; }; };
  std::vector<Variant> rows = {{"again", 2},
                               {"3_ranks", 3},
                               {"2x2", 4, groups(2)},
                               {"second_in_3_of_6", 6, second(3)},
                               {"over_hosts", 6,
                                [](RunOptions& o, const std::string&) {
                                  o.shard_size = 6;
                                  o.hierarchical = true;
                                  o.hosts = hosts_of(6, 3);
                                }},
                               {"disk", 2,
                                [](RunOptions& o, const std::string& folder) {
                                  o.weights_tier = Tier::disk;
                                  o.weights_path = folder;
                                  o.offload.tier = Tier::host;
                                }},
                               {"recomputed", 2, [](RunOptions& o, const std::string&) { o.recompute = true; }}};
  if (!tests_are_whole()) return rows;
  const std::vector<Variant> more = {
      {"4_ranks", 4},
      {"2x3", 6, groups(3)},
      {"second_in_2_of_4", 4, second(2)},
      {"second_in_all", 4, second(4)},
      {"no_overlap", 2, [](RunOptions& o, const std::string&) { o.overlap = false; }},
      {"deferred", 2, [](RunOptions& o, const std::string&) { o.defer = true; }},
      {"host_weights", 3, [](RunOptions& o, const std::string&) { o.weights_tier = Tier::host; }},
      {"ahead", 2, [](RunOptions& o, const std::string&) { o.offload.tier = Tier::host, o.speculative = true; }},
      {"second_deferred", 4, [](RunOptions& o, const std::string&) { o.second_copy = 2, o.defer = true; }}};
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

class Int8Weights : public ::testing::TestWithParam<Variant> {};

TEST_P(Int8Weights, HaveTheSameBitsOnEveryMeshAndTierAndTheMemoryOfThePlan) {
  static const std::vector<RunResult> first = train_on_threads(2, weights_in_int8());
  const TempFolder folder;
  const std::vector<RunResult> ranks =
      train_on_threads(GetParam().world, changed(weights_in_int8(), GetParam(), folder.path()));
  expect_same(ranks, first);
  EXPECT_FALSE(ranks[0].applied[7]) << "the forced overflow was applied";
  expect_planned_memory(ranks);
}

INSTANTIATE_TEST_SUITE_P(Grid, Int8Weights, ::testing::ValuesIn(variants_of_weights()),
                         [](const auto& info) { return info.param.name; });

TEST(Zeropp, QuantizedRunsTrainOtherwiseThanExactOnesAndOneRankIsExact) {
  const std::vector<RunResult> exact = train_on_threads(1, plain_options());
  expect_same(train_on_threads(1, weights_in_int8()), exact);
  const std::vector<RunResult> rounded = train_on_threads(2, weights_in_int8());
  EXPECT_NE(RunResult::bits(rounded[0].norms), RunResult::bits(exact[0].norms));
  for (size_t step = 0; step < exact[0].norms.size(); ++step) {
    if (!exact[0].applied[step]) continue;
    EXPECT_NEAR(rounded[0].norms[step] / exact[0].norms[step], 1, 0.1) << step;
  }
}

// What a user gathers is the master's weight, whatever a pass before computed with.
TEST(Zeropp, WhatIsGatheredForTheUserIsExact) {
  for (const int second : {1, 2}) {
    RunOptions options = weights_in_int8();
    options.second_copy = second;
    options.steps = 1;
    options.lr = 0;  // groups have rates of their own
    options.one_group = true;
    options.evaluate_every = 1;
    RunOptions exact = options;
    exact.quantized_weights = false;
    const std::vector<RunResult> rounded = train_on_threads(4, options), plain = train_on_threads(4, exact);
    EXPECT_TRUE(rounded[0].weights == plain[0].weights);
    EXPECT_NE(RunResult::bits(rounded[0].norms), RunResult::bits(plain[0].norms));
  }
}

// On two hosts of two ranks.
RunOptions few_bit_gradients(int bits, Precision precision = Precision::bf16) {
  RunOptions options = plain_options(precision);
  options.quantized_gradient_bits = bits;
  options.hosts = hosts_of(4, 2);
  return options;
}

std::vector<Variant> variants_of_gradients() {
  const auto stage = [](int number) { return [number](RunOptions& o, const std::string&) { o.stage = number; }; };
  std::vector<Variant> rows = {{"again", 4},
                               {"stage2", 4, stage(2)},
                               {"3_hosts", 6, [](RunOptions& o, const std::string&) { o.hosts = hosts_of(6, 2); }},
                               {"second_in_2", 4, [](RunOptions& o, const std::string&) { o.second_copy = 2; }},
                               {"mics_of_2_at_stage2", 4,
                                [](RunOptions& o, const std::string&) {
                                  o.shard_size = 2;
                                  o.stage = 2;
                                }},
                               {"states_on_disk", 4, [](RunOptions& o, const std::string& folder) {
                                  o.offload = {.tier = Tier::disk, .nvme_path = folder};
                                }}};
  if (!tests_are_whole()) return rows;
  const std::vector<Variant> more = {
      {"3_hosts_at_stage2", 6, [](RunOptions& o, const std::string&) { o.hosts = hosts_of(6, 2), o.stage = 2; }},
      {"mics_of_2", 4, [](RunOptions& o, const std::string&) { o.shard_size = 2; }},
      {"recomputed", 4, [](RunOptions& o, const std::string&) { o.recompute = true; }},
      {"no_overlap", 4, [](RunOptions& o, const std::string&) { o.overlap = false; }},
      {"ahead", 4, [](RunOptions& o, const std::string&) { o.offload.tier = Tier::host, o.speculative = true; }},
      {"whole_pieces", 4, [](RunOptions& o, const std::string&) { o.reduce_bucket = 1 << 20; }}};
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

class FewBitGradients : public ::testing::TestWithParam<Variant> {};

TEST_P(FewBitGradients, HaveTheSameBitsAtEveryStageMeshAndTierAndTheMemoryOfThePlan) {
  static const std::vector<RunResult> first = train_on_threads(4, few_bit_gradients(4));
  const TempFolder folder;
  const std::vector<RunResult> ranks =
      train_on_threads(GetParam().world, changed(few_bit_gradients(4), GetParam(), folder.path()));
  expect_same(ranks, first);
  EXPECT_FALSE(ranks[0].applied[7]) << "the forced overflow was applied";
  expect_planned_memory(ranks);
}

INSTANTIATE_TEST_SUITE_P(Grid, FewBitGradients, ::testing::ValuesIn(variants_of_gradients()),
                         [](const auto& info) { return info.param.name; });

TEST(Zeropp, GradientsOfOneHostAreExact) {
  RunOptions one_host = few_bit_gradients(4);
  one_host.hosts = hosts_of(4, 4);
  expect_same(train_on_threads(4, one_host), train_on_threads(1, plain_options()));
}

// 8 bits are nearer to the exact sums of hosts than 4, and neither is them.
TEST(Zeropp, MoreBitsRoundLess) {
  RunOptions exact = plain_options(Precision::fp32);
  exact.fold_group = 2;
  exact.steps = 1;
  exact.clip = false;
  const double norm = train_on_threads(4, exact)[0].norms[0];
  double error[2];
  for (const int bits : {8, 4}) {
    RunOptions rounded = few_bit_gradients(bits, Precision::fp32);
    rounded.steps = 1;
    rounded.clip = false;
    error[bits == 4] = std::abs(train_on_threads(4, rounded)[0].norms[0] / norm - 1);
  }
  EXPECT_GT(error[0], 0);
  EXPECT_LT(error[0], 1e-3);
  EXPECT_GT(error[1], 2 * error[0]);
  EXPECT_LT(error[1], 0.05);
}

TEST(Zeropp, ErrorFeedbackIsRepeatableAndEqualAtItsStages) {
  RunOptions options = few_bit_gradients(4);
  const std::vector<RunResult> without = train_on_threads(4, options);
  options.error_feedback = 0.8;
  const std::vector<RunResult> at_3 = train_on_threads(4, options);
  EXPECT_NE(RunResult::bits(at_3[0].norms), RunResult::bits(without[0].norms));
  expect_planned_memory(at_3);
  EXPECT_GT(at_3[0].memory.held.gradients, without[0].memory.held.gradients);
  options.stage = 2;
  expect_same(train_on_threads(4, options), at_3);
}

// A loss scale must see the overflow of one host through the blocks of its sums.
TEST(Zeropp, AnOverflowInFp16IsSeenThroughBlocks) {
  for (const int stage : {2, 3}) {
    RunOptions options = few_bit_gradients(4, Precision::fp16);
    options.stage = stage;
    options.quantized_weights = stage == 3;
    const std::vector<RunResult> ranks = train_on_threads(4, options);
    for (const RunResult& rank : ranks) {
      EXPECT_FALSE(rank.applied[7]);
      EXPECT_FALSE(std::isfinite(rank.norms[7]));
      EXPECT_TRUE(rank.applied[8]);
    }
  }
}

void train_leaves(Trainee& trainee, int from, int to, double factor = 1) {
  Engine& engine = *trainee.engine;
  for (int step = from; step < to; ++step) {
    for (int64_t micro = 0; micro < engine.config().batch.accumulation_steps; ++micro) {
      const int64_t leaf = micro * trainee.world.size() + trainee.world.rank();
      engine.backward(forward(engine, trainee.model, batch_of(step, leaf, 0), {0.25, false, true}).mul(factor));
      engine.step();
    }
  }
}

RunOptions all_of_it() {
  RunOptions options = few_bit_gradients(4);
  options.quantized_weights = true;
  options.second_copy = 2;
  return options;
}

// Every state of a quantized run, after it was saved there and loaded here.
TEST(Zeropp, CheckpointsAreExactAndLoadEitherWay) {
  for (const bool quantized_first : {true, false}) {
    const TempFolder folder;
    const auto play = [&](const RunOptions& options, int world, bool loads) {
      return on_threads<std::string>(
          world,
          [&](Group& group) {
            Trainee trainee(group, config_of(options, world), loads ? 2 : 1);
            if (loads) {
              load_checkpoint(*trainee.engine, group, folder.path());
            } else {
              train_leaves(trainee, 0, 2);
              save_checkpoint(*trainee.engine, group, {folder.path(), 2, 0, {}});
            }
            const std::string state = state_bits(*trainee.engine, group);
            if (loads) train_leaves(trainee, 2, 3);  // and it goes on
            return state;
          },
          std::chrono::seconds(60), options.hosts)[0];
    };
    RunOptions exact = plain_options();
    exact.hosts = hosts_of(2, 2);
    const std::string saved = quantized_first ? play(all_of_it(), 4, false) : play(exact, 2, false);
    const std::string loaded = quantized_first ? play(exact, 2, true) : play(all_of_it(), 4, true);
    EXPECT_TRUE(saved == loaded);
  }
}

// A run that goes on from its checkpoint has the bits of the one that never stopped, without error feedback; with it,
// of one that began its errors anew there.
TEST(Zeropp, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  for (const double feedback : {-1.0, 0.8}) {
    RunOptions options = all_of_it();
    options.error_feedback = feedback;
    const TempFolder folder;
    const auto play = [&](int from, int to, bool saves) {
      return on_threads<std::string>(
          4,
          [&](Group& group) {
            Trainee trainee(group, config_of(options, 4), from > 0 ? 2 : 1);
            if (from > 0) load_checkpoint(*trainee.engine, group, folder.path());
            train_leaves(trainee, from, saves ? 2 : to);
            if (saves) save_checkpoint(*trainee.engine, group, {folder.path(), 2, 0, {}});
            if (saves && feedback >= 0) load_checkpoint(*trainee.engine, group, folder.path());
            train_leaves(trainee, saves ? 2 : to, to);
            return state_bits(*trainee.engine, group);
          },
          std::chrono::seconds(60), options.hosts)[0];
    };
    const std::string unbroken = play(0, 4, true);
    EXPECT_TRUE(play(2, 4, false) == unbroken) << "feedback " << feedback;
  }
}

// Errors of what no step took, or that weights have changed behind, are in no later sum: a run that goes on has the
// bits of one that began them anew there.
TEST(Zeropp, ErrorsAreForgottenAfterASkippedStepDroppedGradientsAndAWrite) {
  const std::map<std::string, std::function<void(Trainee&)>> events = {
      {"skipped", [](Trainee& trainee) { train_leaves(trainee, 2, 3, std::numeric_limits<double>::infinity()); }},
      {"dropped",
       [](Trainee& trainee) {
         Engine& engine = *trainee.engine;
         engine.backward(forward(engine, trainee.model, batch_of(2, trainee.world.rank(), 0), {0.25, false, true}));
         engine.step();
         engine.drop_gradients();
       }},
      {"written", [](Trainee& trainee) { trainee.engine->with_gathered(MatrixModel::names(), Access::write, [] {}); }}};
  for (const auto& [name, happens] : events) {
    RunOptions options = all_of_it();
    options.error_feedback = 0.8;
    const TempFolder folder;
    const auto play = [&, happens = happens](bool anew) {
      return on_threads<std::string>(
          4,
          [&](Group& group) {
            Trainee trainee(group, config_of(options, 4));
            train_leaves(trainee, 0, 2);
            happens(trainee);
            if (anew) {
              save_checkpoint(*trainee.engine, group, {folder.path(), 2, 0, {}});
              load_checkpoint(*trainee.engine, group, folder.path());
            }
            train_leaves(trainee, 3, 4);
            return state_bits(*trainee.engine, group);
          },
          std::chrono::seconds(60), options.hosts)[0];
    };
    EXPECT_TRUE(play(false) == play(true)) << name;
  }
}

// Written weights are quantized anew: second copies of them too.
TEST(Zeropp, WritesOfGatheredParametersAreSeenByTheNextPass) {
  std::vector<std::string> found;
  for (const int second : {1, 2}) {
    RunOptions options = weights_in_int8();
    options.second_copy = second;
    found.push_back(on_threads<std::string>(4, [&](Group& group) {
      Trainee trainee(group, config_of(options, 4));
      train_leaves(trainee, 0, 1);
      trainee.engine->with_gathered(MatrixModel::names(), Access::write, [&] {
        for (const at::Tensor& tensor : trainee.model.tensors()) tensor.detach().mul_(0.5);
      });
      train_leaves(trainee, 1, 2);
      return state_bits(*trainee.engine, group);
    })[0]);
  }
  EXPECT_TRUE(found[0] == found[1]);
}

TEST(Zeropp, HostsOfDifferentSizesAreRefusedForGradientsAlone) {
  RunOptions options = few_bit_gradients(4);
  options.hosts = {0, 0, 0, 1};
  EXPECT_NE(message_of([&] {
              train_on_threads(4, options);
            }).find("[config zero_optimization.zero_quantized_gradients] asks for the ranks of a host"),
            std::string::npos);
}

}  // namespace
}  // namespace shoal::testing
