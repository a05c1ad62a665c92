// Where never changes what: every placement of the optimizer's states, and of the weights, gives the bits of the
// resident run.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>
#include <tuple>

#include "plan/from_config.h"
#include "plan/memory.h"
#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "test_size.h"
#include "training/exactness.h"
#include "training/matrix_engine.h"

namespace shoal::testing {
namespace {

OffloadConfig placed(Tier tier, double ratio, const TempFolder& folder) {
  return {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = ratio};
}

RunOptions steps_with(Precision precision, int64_t accumulation) {
  RunOptions options;
  options.precision = precision;
  options.accumulation = accumulation;
  if (!tests_are_whole()) options.steps = 10;  // the overflow, and steps after it
  return options;
}

std::filesystem::path only_file_named(const std::string& name, const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == name) return entry.path();
  }
  return {};
}

// The state as a checkpoint sees it, whole, by name.
std::map<std::string, std::vector<float>> state_of(const Engine& engine) {
  std::map<std::string, std::vector<float>> state;
  for (const StateRun& run : engine.state().owned()) {
    std::vector<float> values(static_cast<size_t>(run.numel));
    engine.state().read(run, values.data());
    state[fmt::format("{} {} {}", run.param, static_cast<int>(run.kind), run.begin)] = values;
  }
  return state;
}

// Stage 3, with sharded weights on disk.
RunOptions weights_on_disk(RunOptions options, const TempFolder& folder, int buffers = 2, int64_t in_host = 0,
                           double ratio = 1) {
  options.stage = 3;
  options.weights_tier = Tier::disk;
  options.weights_path = folder.path();
  options.weight_buffers = buffers;
  options.weights_in_host = in_host;
  options.weights_ratio = ratio;
  return options;
}

using PlacedCell = std::tuple<int, Precision, int64_t>;  // world, precision, accumulation

class Placement : public ::testing::TestWithParam<PlacedCell> {};

TEST_P(Placement, EveryTierAndRatioGivesTheBitsOfTheResidentRun) {
  const auto [world, precision, accumulation] = GetParam();
  const TempFolder folder;
  RunOptions options = steps_with(precision, accumulation);
  const std::vector<RunResult> resident = train_on_threads(world, options);
  int combination = world;  // any two of stage, tier and ratio meet; all three of them only in the whole grid
  for (int stage = tests_are_small() ? 2 : 0; stage <= 3; ++stage, ++combination) {
    for (const Tier tier : {Tier::host, Tier::disk}) {
      for (const double ratio : {0.0, 0.3, 1.0}) {
        if (++combination % 2 == 0 && !tests_are_whole() && !tests_are_small()) continue;
        options.stage = stage;
        options.offload = placed(tier, ratio, folder);
        options.overlap = stage % 2 == 0;
        const std::vector<RunResult> got = train_on_threads(world, options);
        for (size_t rank = 0; rank < got.size(); ++rank) {
          EXPECT_TRUE(got[rank] == resident[rank])
              << fmt::format("stage {} tier {} ratio {} rank {}", stage, name_of(tier), ratio, rank);
        }
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a run left something behind";
}

INSTANTIATE_TEST_SUITE_P(Cells, Placement,
                         ::testing::Values(PlacedCell{1, Precision::bf16, 1}, PlacedCell{2, Precision::bf16, 3},
                                           PlacedCell{2, Precision::fp16, 1}, PlacedCell{3, Precision::fp32, 1}),
                         [](const auto& info) {
                           return fmt::format("world{}_{}_accumulate{}", std::get<0>(info.param),
                                              name_of(std::get<1>(info.param)), std::get<2>(info.param));
                         });

TEST(Offload, DeviceHostAndDiskTogetherGiveTheBitsOfTheResidentRun) {
  const TempFolder folder;
  RunOptions options = steps_with(Precision::bf16, 1);
  const std::vector<RunResult> resident = train_on_threads(2, options);
  options.offload = placed(Tier::disk, 0.8, folder);
  options.offload_disk_ratio = 0.4;
  for (int stage = 0; stage <= 3; ++stage) {
    options.stage = stage;
    const std::vector<RunResult> got = train_on_threads(2, options);
    EXPECT_TRUE(got[1] == resident[1]) << "stage " << stage;
    const MemoryPlan& held = got[1].memory.held;
    EXPECT_TRUE(held.states > 0 && held.host_states > 0 && held.disk_states > 0) << "stage " << stage;
    const MemoryPlan& planned = got[1].memory.planned;
    EXPECT_EQ(held.states, planned.states) << "stage " << stage;
    EXPECT_EQ(held.host_states, planned.host_states) << "stage " << stage;
    EXPECT_EQ(held.disk_states, planned.disk_states) << "stage " << stage;
  }
}

TEST_P(Placement, WeightsOnDiskGiveTheBitsOfTheResidentRun) {
  const auto [world, precision, accumulation] = GetParam();
  const TempFolder folder;
  RunOptions options = steps_with(precision, accumulation);
  std::map<int64_t, std::vector<RunResult>> residents;  // with small parameters whole, and sharded too
  for (const int64_t threshold : {100, 0}) {
    options.persistence_threshold = threshold;
    residents[threshold] = train_on_threads(world, options);
  }
  int turn = 0;
  for (const Tier states : {Tier::device, Tier::host, Tier::disk}) {
    for (const int buffers : {1, 2, 9}) {
      ++turn;
      options.offload = placed(states, 1.0, folder);
      options.overlap = turn % 2 == 0;
      options.recompute = turn % 3 == 0;
      options.persistence_threshold = turn % 2 == 0 ? 100 : 0;
      options.defer = turn % 4 > 1;
      const std::vector<RunResult> got =
          train_on_threads(world, weights_on_disk(options, folder, buffers, turn % 3 == 1 ? 700 : 0,
                                                  /*ratio=*/turn % 3 == 2 ? 0.6 : 1));
      const std::vector<RunResult>& resident = residents[options.persistence_threshold];
      for (size_t rank = 0; rank < got.size(); ++rank) {
        EXPECT_TRUE(got[rank] == resident[rank])
            << fmt::format("states on {}, {} buffers, rank {}", name_of(states), buffers, rank);
        EXPECT_GT(got[rank].memory.held.disk_weights, 0u);
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a run left something behind";
}

// Small parameters are sharded too: where ranks send each other updated weights, nothing is deferred.
TEST(Deferred, UpdatesGiveTheBitsOfStepsThatUpdateAtOnce) {
  const TempFolder folder;
  for (const int world : {1, 2, 3}) {
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      RunOptions options = steps_with(precision, world == 2 ? 3 : 1);
      options.persistence_threshold = 0;
      const std::vector<RunResult> at_once = train_on_threads(world, options);
      options.defer = true;
      for (int stage = 0; stage <= 3; ++stage) {
        for (const Tier tier : {Tier::device, Tier::disk}) {
          options.stage = stage;
          options.offload = placed(tier, 1.0, folder);
          options.overlap = stage % 2 == 1;
          options.recompute = tier == Tier::disk;
          EXPECT_TRUE(train_on_threads(world, options)[0] == at_once[0])
              << fmt::format("world {} {} stage {} states on {}", world, name_of(precision), stage, name_of(tier));
        }
      }
    }
  }
}

// Everything that reads or writes a weight or a state through the engine, right after a step.
TEST(Deferred, WhateverReadsThroughTheEngineSeesTheStep) {
  RunOptions options = released_at(3);
  options.precision = Precision::bf16;
  RunOptions deferred = options;
  deferred.defer = true;
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine plain(group, options);
    MatrixEngine later(group, deferred);
    const auto both = [&](const auto& use) { EXPECT_EQ(use(plain), use(later)); };
    int step = 0;
    const auto after_a_step = [&](const auto& use) {
      plain.train_step(step);
      later.train_step(step);
      both(use);
      ++step;
    };
    after_a_step([](MatrixEngine& run) { return run.weights(); });
    after_a_step([](MatrixEngine& run) { return state_of(*run.engine); });
    after_a_step([](MatrixEngine& run) {
      float loss = 0;
      run.engine->evaluate([&] { loss = run.loss(50).item<float>(); });
      return loss;
    });
    after_a_step([](MatrixEngine& run) {
      const StateRun first = run.engine->state().kept().front();
      std::vector<float> values(static_cast<size_t>(first.numel), 0.25f);
      run.engine->state().write(first, values.data());
      run.engine->state().finish_restore(run.engine->state().progress());
      return run.weights();
    });
    after_a_step([](MatrixEngine& run) {
      run.engine->with_gathered(MatrixModel::names(), Access::write, [&] {
        const at::NoGradGuard without_graph;
        run.model.tensors()[0].fill_(0.5);
      });
      return 0;
    });
    both([](MatrixEngine& run) { return run.weights(); });
    return 0;
  });
}

// Shards that an engine leaves behind are those after its last step.
TEST(Deferred, AnEngineThatGoesFinishesItsStep) {
  RunOptions options = released_at(3);
  options.defer = true;
  RunOptions plain = released_at(3);
  on_threads<int>(2, [&](Group& group) {
    std::vector<std::string> left;
    for (const RunOptions& each : {plain, options}) {
      MatrixEngine run(group, each);
      run.train_step(0);
      run.engine.reset();
      run.engine = std::make_unique<Engine>(run.model.units(), config_of(plain, group.size()), group, two_groups());
      left.push_back(run.weights());
    }
    EXPECT_EQ(left[0], left[1]);
    return 0;
  });
}

TEST(Deferred, AFailureInALateUpdateNamesItselfAndTheEngineRefusesToGoOn) {
  const TempFolder folder;
  RunOptions options = released_at(0);
  options.defer = true;
  options.offload = placed(Tier::disk, 1.0, folder);
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine run(*group, options);
  run.train_step(0);
  run.weights();
  run.engine->backward(run.loss(1));
  run.engine->step();
  const std::filesystem::path file = only_file_named("states", folder.path());
  std::filesystem::resize_file(file, 4096);
  const std::string message = message_of([&] { run.weights(); });
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  EXPECT_NE(message_of([&] { run.train_step(2); }).find("an earlier step failed half-way"), std::string::npos);
}

// Whatever is assumed of a step, its bits are those of the decided one: where nothing is clipped, sometimes, and
// always; with a step that is skipped, and a scale of the loss that moves.
TEST(Speculation, UpdatesAheadOfTheDecisionGiveTheBitsOfTheResidentRun) {
  for (const int world : {1, 2}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      const int64_t accumulation = precision == Precision::bf16 ? 3 : 1;
      for (const double clip_norm : {0.0, 0.3, 0.05}) {
        RunOptions options = steps_with(precision, accumulation);
        options.steps = 10;
        options.clip = clip_norm > 0;
        options.clip_norm = clip_norm;
        const std::vector<RunResult> resident = train_on_threads(world, options);
        options.speculative = true;
        int64_t ahead = 0, taken = 0;
        for (int stage = 0; stage <= 3; ++stage) {
          options.stage = stage;
          options.offload = {.tier = Tier::host, .ratio = stage == 2 ? 0.5 : 1.0};
          options.defer = stage == 3;
          options.weights_tier = stage == 3 ? Tier::host : Tier::device;
          options.recompute = stage == 1;
          const std::vector<RunResult> got = train_on_threads(world, options);
          const std::string cell =
              fmt::format("world {} {} clip {} stage {}", world, name_of(precision), clip_norm, stage);
          EXPECT_TRUE(got == resident) << cell;
          EXPECT_EQ(got[0].memory.held.host_states, got[0].memory.planned.host_states) << cell;
          ahead += got[0].ahead_numel;
          taken += got[0].taken_ahead_numel;
        }
        const std::string cells = fmt::format("world {} {} clip {}", world, name_of(precision), clip_norm);
        EXPECT_GT(ahead, 0) << cells;
        EXPECT_LT(taken, ahead) << cells << ": a step is skipped";
        if (clip_norm == 0) {
          EXPECT_GT(taken, ahead / 2) << cells;
        }
      }
    }
  }
}

// Gradients and weights that somebody changes between the backward and the step, when much is updated already.
TEST(Speculation, WhatIsWrittenBeforeTheStepCounts) {
  RunOptions options = released_at(3);
  options.precision = Precision::bf16;
  RunOptions ahead = options;
  ahead.offload = {.tier = Tier::host};
  ahead.speculative = true;
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine plain(group, options);
    MatrixEngine speculative(group, ahead);
    for (int step = 0; step < 9; ++step) {
      for (MatrixEngine* run : {&plain, &speculative}) {
        run->engine->backward(run->loss(step));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (step % 3 == 1) {
          for (const StateRun& kept : run->engine->state().kept_gradients()) {
            const std::vector<float> values(static_cast<size_t>(kept.numel), 0.125f);
            run->engine->state().write_gradient(kept, values.data());
          }
        } else if (step % 3 == 2) {
          run->engine->with_gathered(MatrixModel::names(), Access::write, [&] {
            const at::NoGradGuard without_graph;
            run->model.tensors()[0].mul_(0.5);
          });
        }
        run->engine->step();
      }
      EXPECT_TRUE(plain.weights() == speculative.weights()) << step;
    }
    EXPECT_EQ(state_of(*plain.engine), state_of(*speculative.engine));
    EXPECT_GT(speculative.engine->meters().host().taken_ahead_numel, 0);
    EXPECT_LT(speculative.engine->meters().host().taken_ahead_numel, speculative.engine->meters().host().ahead_numel);
    return 0;
  });
}

// One that is destroyed between the backward and the step, when the host is at work.
TEST(Speculation, AnEngineMayGoAtAnyTime) {
  RunOptions options = released_at(2);
  options.offload = {.tier = Tier::host};
  options.speculative = true;
  const std::unique_ptr<Group> world = make_single_group();
  for (int turn = 0; turn < 20; ++turn) {
    MatrixEngine run(*world, options);
    run.train_step(0);
    run.engine->backward(run.loss(1));
  }
}

TEST(Offload, EveryOptimizerGivesTheSameBitsFromDisk) {
  const TempFolder folder;
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    if (kind == OptimizerKind::adamw) continue;  // as all other tests have it
    if (row.by_parameter) continue;              // refused by configs
    RunOptions options = steps_with(Precision::bf16, 1);
    options.optimizer = kind;
    options.stage = 2;
    const std::vector<RunResult> resident = train_on_threads(2, options);
    options.offload = placed(Tier::disk, 1.0, folder);
    EXPECT_TRUE(train_on_threads(2, options)[1] == resident[1]) << row.name;
  }
}

TEST(Offload, TheEngineHoldsWhatThePlanCountsOnEveryTier) {
  const TempFolder folder;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Tier tier : {Tier::host, Tier::disk}) {
      for (const double ratio : {0.3, 1.0}) {
        RunOptions options = released_at(stage);
        options.precision = Precision::bf16;
        options.offload = placed(tier, ratio, folder);
        on_threads<int>(2, [&](Group& group) {
          MatrixEngine run(group, options);
          run.train_step(0);
          const MemoryReport memory = run.engine->meters().memory();
          EXPECT_EQ(memory.held.states, memory.planned.states);
          EXPECT_EQ(memory.held.host_states, memory.planned.host_states);
          EXPECT_EQ(memory.held.disk_states, memory.planned.disk_states);
          EXPECT_EQ(memory.held.disk_buffers, memory.planned.disk_buffers);
          EXPECT_EQ(memory.planned.states == 0, ratio == 1.0);
          EXPECT_GT(tier == Tier::host ? memory.held.host_states : memory.held.disk_states, 0u);
          return 0;
        });
      }
    }
  }
}

TEST(Offload, ParametersInHostMemoryAreCountedThere) {
  RunOptions options = released_at(3);
  Config config = config_of(options, 2);
  config.zero.offload_param.tier = Tier::host;
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine run(group, config);
    run.train_step(0);
    const MemoryReport memory = run.engine->meters().memory();
    EXPECT_EQ(memory.held.weights, memory.planned.weights);
    EXPECT_EQ(memory.held.host_weights, memory.planned.host_weights);
    EXPECT_GT(memory.held.host_weights, 0u);
    return 0;
  });
}

TEST(WeightsOnDisk, TheEngineHoldsWhatThePlanCounts) {
  const TempFolder folder;
  for (const int world : {1, 2, 3}) {
    for (const int64_t in_host : {0, 500, 1'000'000}) {
      RunOptions options = weights_on_disk(released_at(3), folder, 3, in_host, /*ratio=*/in_host == 0 ? 0.6 : 1);
      options.precision = Precision::bf16;
      options.offload = placed(Tier::disk, 1.0, folder);
      on_threads<int>(world, [&](Group& group) {
        MatrixEngine run(group, options);
        run.train_step(0);
        run.train_step(1);
        const MemoryReport memory = run.engine->meters().memory();
        EXPECT_EQ(memory.held.weights, memory.planned.weights);
        EXPECT_EQ(memory.held.host_weights, memory.planned.host_weights);
        EXPECT_EQ(memory.held.disk_weights, memory.planned.disk_weights);
        EXPECT_EQ(memory.held.disk_states, memory.planned.disk_states);
        EXPECT_EQ(memory.held.disk_buffers, memory.planned.disk_buffers);
        EXPECT_EQ(memory.held.disk_weights > 0, in_host < 1'000'000);
        EXPECT_EQ(memory.held.host_weights > 0, in_host > 0);
        EXPECT_EQ(memory.held.weights > 0, in_host == 0) << "a share stays";
        return 0;
      });
    }
  }
}

// A step reads every shard for forward, for backward and for the update, and writes it once, where buffers are too few
// to keep any.
TEST(WeightsOnDisk, AStepReadsThemThreeTimesAndWritesThemOnce) {
  const TempFolder folder;
  const std::unique_ptr<Group> group = make_single_group();
  RunOptions options = weights_on_disk(released_at(3), folder, 1);
  MatrixEngine run(*group, options);
  for (int step = 0; step < 3; ++step) run.train_step(step);
  run.weights();  // what was changed last is written
  const DiskTraffic before = run.engine->meters().disk();
  run.train_step(3);
  run.weights();
  const DiskTraffic after = run.engine->meters().disk();
  const size_t file = run.engine->meters().memory().held.disk_weights;
  EXPECT_EQ(after.written_nbytes - before.written_nbytes, file);
  EXPECT_GE(after.read_nbytes - before.read_nbytes, 3 * file - 3 * file / 4);
  EXPECT_LE(after.read_nbytes - before.read_nbytes, 6 * file);  // the matrix model uses two of its units twice
}

TEST(WeightsOnDisk, WhateverReadsThroughTheEngineSeesTheResidentRun) {
  const TempFolder folder;
  for (const int world : {1, 2}) {
    for (const bool defer : {false, true}) {
      RunOptions options = released_at(3);
      options.precision = Precision::bf16;
      RunOptions on_disk = weights_on_disk(options, folder);
      on_disk.defer = defer;
      on_threads<int>(world, [&](Group& group) {
        MatrixEngine plain(group, options);
        MatrixEngine disk(group, on_disk);
        int step = 0;
        const auto after_a_step = [&](const auto& use) {
          plain.train_step(step);
          disk.train_step(step);
          EXPECT_EQ(use(plain), use(disk)) << "step " << step;
          ++step;
        };
        after_a_step([](MatrixEngine& run) { return run.weights(); });
        after_a_step([](MatrixEngine& run) { return state_of(*run.engine); });
        after_a_step([](MatrixEngine& run) {
          float loss = 0;
          run.engine->evaluate([&] { loss = run.loss(50).item<float>(); });
          return loss;
        });
        after_a_step([](MatrixEngine& run) {
          run.engine->with_gathered({"wte", "drop.w"}, Access::write, [&] {
            const at::NoGradGuard without_graph;
            run.model.tensors()[0].fill_(0.5);
          });
          return run.weights();
        });
        after_a_step([](MatrixEngine& run) { return state_of(*run.engine); });
        return 0;
      });
    }
  }
}

TEST(WeightsOnDisk, ACheckpointGoesToResidentWeightsAndBack) {
  const TempFolder folder, checkpoints;
  for (const int world : {1, 2, 3}) {
    RunOptions resident = released_at(3);
    resident.precision = Precision::bf16;
    const RunOptions on_disk = weights_on_disk(resident, folder);
    on_threads<int>(world, [&](Group& group) {
      MatrixEngine straight(group, resident);
      MatrixEngine first(group, on_disk);
      for (int step = 0; step < 2; ++step) straight.train_step(step), first.train_step(step);
      const std::string path = checkpoints / std::to_string(world);
      save_checkpoint(*first.engine, group, {path, 2, 0, {}});
      MatrixEngine second(group, resident);
      load_checkpoint(*second.engine, group, path);
      straight.train_step(2);
      second.train_step(2);
      EXPECT_EQ(straight.weights(), second.weights());
      save_checkpoint(*second.engine, group, {path, 3, 0, {}});
      MatrixEngine third(group, on_disk);
      load_checkpoint(*third.engine, group, path);
      straight.train_step(3);
      third.train_step(3);
      EXPECT_EQ(straight.weights(), third.weights());
      return 0;
    });
  }
}

// The file stays as long as a parameter has its shard there.
TEST(WeightsOnDisk, AnotherEngineTakesThemFromTheOneThatIsGone) {
  const TempFolder folder;
  for (const int world : {1, 2, 3}) {
    RunOptions resident = released_at(3);
    resident.precision = Precision::bf16;
    const RunOptions on_disk = weights_on_disk(resident, folder);
    on_threads<int>(world, [&](Group& group) {
      std::vector<std::string> left;
      for (const auto& [from, to] : {std::pair(resident, resident), std::pair(on_disk, resident),
                                     std::pair(resident, on_disk), std::pair(on_disk, on_disk)}) {
        MatrixEngine run(group, from);
        run.train_step(0);
        run.engine.reset();
        run.engine = std::make_unique<Engine>(run.model.units(), config_of(to, group.size()), group, two_groups());
        run.train_step(1);
        left.push_back(run.weights());
        run.engine.reset();
        make_whole(run.model.units(), group);
        EXPECT_EQ(run.plain_weights(), left.back());
        EXPECT_EQ(left.back(), left.front());
        group.barrier({"end", ""}).wait();
      }
      return 0;
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file of an engine that is gone is still there";
  }
}

TEST(WeightsOnDisk, ADamagedFileIsAnErrorAtThePassThatNeedsItAndTheProcessLives) {
  const TempFolder folder;
  const RunOptions options = weights_on_disk(released_at(3), folder, 1);
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine run(*group, options);
  run.train_step(0);
  const std::filesystem::path file = only_file_named("weights", folder.path());
  ASSERT_FALSE(file.empty());
  std::filesystem::resize_file(file, 4096);
  const std::string message = message_of([&] { run.train_step(1); });
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  for (const auto& use :
       {std::function<void()>([&] { run.train_step(2); }), std::function<void()>([&] { run.weights(); }),
        std::function<void()>([&] { run.engine->evaluate([&] { run.loss(0); }); }),
        std::function<void()>([&] { run.engine->state().finish_restore({}); })}) {
    const std::string later = message_of(use);
    EXPECT_NE(later.find("an earlier pass could not gather its weights"), std::string::npos) << later;
    EXPECT_NE(later.find(file.string()), std::string::npos) << later;
  }
  MatrixEngine another(*group, options);
  EXPECT_TRUE(another.train_step(0).applied);
}

// Rank 1 cannot read its second unit, so rank 0's gather of that one, ahead of use, never ends. It reads from the
// buffer that rank 0's deferred updates need when its engine goes.
TEST(WeightsOnDisk, AnEngineThatGoesFinishesItsStepAndWaitsForNoPeer) {
  constexpr int kUnits = 4, kSide = 16;
  std::atomic<bool> gone = false;
  ::testing::internal::CaptureStderr();
  on_threads<int>(
      2,
      [&](Group& group) {
        at::set_num_threads(1);
        const TempFolder folder;
        RunOptions options = weights_on_disk(released_at(3), folder, 1);
        options.defer = true;
        std::vector<at::Tensor> weights;
        std::vector<Unit> units;
        for (int unit = 0; unit < kUnits; ++unit) {
          weights.push_back(at::full({kSide, kSide}, 0.1).set_requires_grad(true));
          units.push_back({fmt::format("u{}", unit), {{fmt::format("w{}", unit), weights.back()}}});
        }
        auto engine = std::make_unique<Engine>(units, config_of(options, 2), group);
        const auto use = [&](int unit, const at::Tensor& x) {
          return engine->run(unit, x, [&](const at::Tensor& t) { return at::linear(t, weights[unit]); });
        };
        for (int step = 0; step < 2; ++step) {
          at::Tensor x = at::ones({2, kSide});
          for (int unit = 0; unit < kUnits; ++unit) x = use(unit, x);
          engine->backward(x.square().mean());
          engine->step();
        }
        if (group.rank() == 1) {
          std::filesystem::resize_file(only_file_named("weights", folder.path()), 4096);
          EXPECT_NE(message_of([&] { use(0, at::ones({2, kSide})); }), "");
          while (!gone) std::this_thread::yield();
          return 0;
        }
        use(0, at::ones({2, kSide}));
        const auto begin = std::chrono::steady_clock::now();
        engine.reset();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
        gone = true;
        return 0;
      },
      std::chrono::seconds(5));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("is lost"), std::string::npos) << said;
}

TEST(WeightsOnDisk, AFailureInTheUpdateStopsTheEngineFromGoingOn) {
  const TempFolder folder;
  const RunOptions options = weights_on_disk(released_at(3), folder, 1);
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine run(*group, options);
  run.train_step(0);
  run.engine->backward(run.loss(1));
  const std::filesystem::path file = only_file_named("weights", folder.path());
  std::filesystem::resize_file(file, 4096);
  const std::string message = message_of([&] { run.engine->step(); });
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  EXPECT_NE(message_of([&] { run.train_step(2); }).find("an earlier step failed half-way"), std::string::npos);
}

TEST(WeightsOnDisk, ADamagedFileInAnEvaluationIsNamedOnce) {
  const TempFolder folder;
  const RunOptions options = weights_on_disk(released_at(3), folder, 1);
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine run(*group, options);
  run.train_step(0);
  const std::filesystem::path file = only_file_named("weights", folder.path());
  std::filesystem::resize_file(file, 4096);
  const auto evaluate = [&] { run.engine->evaluate([&] { run.loss(0); }); };
  EXPECT_NE(message_of(evaluate).find(file.string()), std::string::npos);
  EXPECT_NE(message_of(evaluate).find("an earlier pass could not gather its weights"), std::string::npos);
}

TEST(Offload, ADamagedFileIsAnErrorAtTheStepThatNeedsItAndTheProcessLives) {
  const TempFolder folder;
  RunOptions options = released_at(1);
  options.offload = placed(Tier::disk, 1.0, folder);
  const std::unique_ptr<Group> group = make_single_group();
  MatrixEngine run(*group, options);
  run.train_step(0);
  const std::filesystem::path file = only_file_named("states", folder.path());
  ASSERT_FALSE(file.empty());
  std::filesystem::resize_file(file, 4096);
  const std::string message = message_of([&] { run.train_step(1); });
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  for (const auto& use :
       {std::function<void()>([&] { run.train_step(2); }), std::function<void()>([&] { run.weights(); }),
        std::function<void()>([&] { run.engine->state().finish_restore({}); })}) {
    EXPECT_NE(message_of(use).find("an earlier step failed half-way"), std::string::npos);
  }
  MatrixEngine another(*group, options);
  EXPECT_TRUE(another.train_step(0).applied);
}

TEST(Offload, AStateReadFromDiskIsTheResidentOneAndCanBeWrittenBack) {
  const TempFolder folder;
  RunOptions options = released_at(2);
  options.precision = Precision::bf16;
  RunOptions from_disk = options;
  from_disk.offload = placed(Tier::disk, 1.0, folder);
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine resident(group, options);
    MatrixEngine offloaded(group, from_disk);
    for (int step = 0; step < 3; ++step) {
      resident.train_step(step);
      offloaded.train_step(step);
    }
    EXPECT_EQ(state_of(*resident.engine), state_of(*offloaded.engine));
    MatrixEngine later(group, from_disk);
    for (const StateRun& run : resident.engine->state().kept()) {
      std::vector<float> values(static_cast<size_t>(run.numel));
      resident.engine->state().read(run, values.data());
      later.engine->state().write(run, values.data());
    }
    later.engine->state().finish_restore(resident.engine->state().progress());
    resident.train_step(3);
    later.train_step(3);
    EXPECT_EQ(resident.weights(), later.weights());
    return 0;
  });
}

}  // namespace
}  // namespace shoal::testing
