// States and weights of a GPU's rank in host memory and on disk: the bits of the resident run.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "cuda/torch_gpu.h"
#include "temp_folder.h"
#include "training/matrix_engine.h"

namespace shoal::testing {
namespace {

TEST(GpuOffload, EveryTierGivesTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32}) {
    RunOptions options;
    options.device = gpu();
    options.precision = precision;
    options.steps = 10;
    const std::vector<RunResult> resident = train_on_threads(2, options);
    for (const int stage : {1, 3}) {
      for (const Tier tier : {Tier::host, Tier::disk}) {
        for (const double ratio : {0.3, 1.0}) {
          options.stage = stage;
          options.offload = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = ratio};
          EXPECT_TRUE(train_on_threads(2, options)[1] == resident[1])
              << fmt::format("{} stage {} tier {} ratio {}", name_of(precision), stage, name_of(tier), ratio);
        }
      }
    }
  }
}

// Moments and masters of 16 bits: the GPU's kernels and the host's give the same bits, at every stage.
TEST(GpuOffload, NarrowStatesHaveTheSameBitsAtEveryStageAndWhoeverUpdates) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const bool narrow_masters : {true, false}) {
      RunOptions options;
      options.device = gpu();
      options.precision = precision;
      options.bf16_states = precision == Precision::bf16;
      options.narrow_masters = narrow_masters;
      options.lr = 1e-2;
      options.steps = 10;
      if (!options.bf16_states && !narrow_masters) continue;
      const std::vector<RunResult> resident = train_on_threads(2, options);
      for (int stage = 0; stage <= 3; ++stage) {
        options.stage = stage;
        options.offload = {};
        options.offload_update = OffloadUpdate::automatic;
        EXPECT_TRUE(train_on_threads(2, options) == resident) << fmt::format("{} stage {}", name_of(precision), stage);
        for (const OffloadUpdate updater : {OffloadUpdate::device, OffloadUpdate::host}) {
          for (const Tier tier : {Tier::host, Tier::disk}) {
            options.offload = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = 0.7};
            options.offload_update = updater;
            EXPECT_TRUE(train_on_threads(2, options) == resident) << fmt::format(
                "{} stage {} tier {} updater {}", name_of(precision), stage, name_of(tier), static_cast<int>(updater));
          }
        }
      }
    }
  }
}

// A ring for one chunk, for a few of them, and one that grows to hold all; the host as the one who updates; and both.
TEST(GpuOffload, EveryRingAndUpdaterGivesTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  RunOptions options;
  options.device = gpu();
  options.precision = Precision::bf16;
  options.accumulation = 2;
  options.steps = 10;
  const std::vector<RunResult> resident = train_on_threads(2, options);
  options.offload = {.tier = Tier::host};
  for (const int stage : {0, 1, 2, 3}) {
    options.stage = stage;
    int64_t most_shared = 0;
    for (const int64_t ring : {1, 5000, 0}) {
      options.offload_ring = ring;
      options.offload_update = OffloadUpdate::device;
      const std::vector<RunResult> streamed = train_on_threads(2, options);
      EXPECT_TRUE(streamed[1] == resident[1]) << fmt::format("stage {} ring {}", stage, ring);
      EXPECT_GT(streamed[1].memory.held.host_states, 0u);
      EXPECT_EQ(streamed[1].host_updated_numel, 0);
      if (ring > 0) {
        EXPECT_EQ(streamed[1].memory.held.state_ring, streamed[1].memory.planned.state_ring);
      }
      options.offload_update = OffloadUpdate::automatic;
      const std::vector<RunResult> shared = train_on_threads(2, options);
      EXPECT_TRUE(shared[1] == resident[1]) << fmt::format("stage {} ring {}, the host updates a share", stage, ring);
      if (ring == 1) {
        EXPECT_GT(shared[1].host_updated_numel, 0) << stage;
      }
      if (ring == 0) {  // the ring holds all
        EXPECT_EQ(shared[1].host_updated_numel, 0) << stage;
      }
      most_shared = std::max(most_shared, shared[1].host_updated_numel);
    }
    options.offload_update = OffloadUpdate::host;
    const std::vector<RunResult> by_host = train_on_threads(2, options);
    EXPECT_TRUE(by_host[1] == resident[1]) << fmt::format("stage {}, the host updates", stage);
    EXPECT_GT(by_host[1].host_updated_numel, most_shared);
  }
}

// Gradients leave the GPU as they are reduced, and come back where a later micro-step adds to them.
TEST(GpuOffload, GradientsInHostMemoryGiveTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const int world : {1, 2}) {
    for (const int accumulation : {1, 3}) {
      for (const int stage : {0, 1, 2, 3}) {
        RunOptions options;
        options.device = gpu();
        options.precision = accumulation == 1 ? Precision::fp16 : Precision::bf16;  // fp16 skips steps
        options.accumulation = accumulation;
        options.stage = stage;
        options.reproducible = stage == 1;
        options.recompute = stage == 3;
        options.steps = 10;
        const std::vector<RunResult> resident = train_on_threads(world, options);
        options.offload_update = OffloadUpdate::host;
        options.offload_gradients = OffloadGradients::on;
        options.defer = stage == 3;
        for (const Tier weights : {Tier::device, Tier::host}) {
          if (stage < 3 && weights == Tier::host) continue;
          options.weights_tier = weights;
          for (const Tier tier : {Tier::host, Tier::disk}) {
            for (const double ratio : {0.5, 1.0}) {
              options.offload = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = ratio};
              const std::vector<RunResult> got = train_on_threads(world, options);
              EXPECT_TRUE(got == resident)
                  << fmt::format("world {} accumulation {} stage {} weights on {} states on {} ratio {}", world,
                                 accumulation, stage, name_of(weights), name_of(tier), ratio);
              const MemoryPlan &held = got[0].memory.held, &planned = got[0].memory.planned;
              EXPECT_GT(held.host_gradients, 0u);
              EXPECT_EQ(held.host_gradients, planned.host_gradients);
              EXPECT_EQ(held.gradients, planned.gradients);
              EXPECT_EQ(held.gradients > 0, ratio < 1);
              EXPECT_EQ(held.state_ring, planned.state_ring);
            }
          }
        }
      }
    }
  }
}

// Steps that are as assumed, that clip, and that are skipped.
TEST(GpuOffload, UpdatesAheadOfTheDecisionGiveTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  for (const int world : {1, 2}) {
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      for (const double clip_norm : {0.0, 0.3}) {
        int64_t ahead = 0, taken = 0;
        for (const int stage : {0, 1, 2, 3}) {
          RunOptions options;
          options.device = gpu();
          options.precision = precision;
          options.accumulation = precision == Precision::bf16 ? 2 : 1;
          options.clip = clip_norm > 0;
          options.clip_norm = clip_norm;
          options.stage = stage;
          options.recompute = stage == 2;
          options.steps = 12;
          const std::vector<RunResult> resident = train_on_threads(world, options);
          options.speculative = true;
          options.offload = {.tier = Tier::host, .ratio = stage == 3 && world == 1 ? 0.6 : 1};
          options.offload_update = OffloadUpdate::host;
          options.defer = stage == 3;
          for (const OffloadGradients gradients : {OffloadGradients::off, OffloadGradients::on}) {
            for (const Tier weights : {Tier::device, Tier::host}) {
              if (stage < 3 && weights == Tier::host) continue;
              options.offload_gradients = gradients;
              options.weights_tier = weights;
              const std::vector<RunResult> got = train_on_threads(world, options);
              EXPECT_TRUE(got == resident) << fmt::format(
                  "world {} {} clip {} stage {} gradients in host memory {} weights on {}", world, name_of(precision),
                  clip_norm, stage, gradients == OffloadGradients::on, name_of(weights));
              EXPECT_EQ(got[0].memory.held.host_states, got[0].memory.planned.host_states);
              ahead += got[0].ahead_numel;
              taken += got[0].taken_ahead_numel;
            }
          }
        }
        EXPECT_LT(taken, ahead) << "a step is skipped";
        if (clip_norm == 0) {
          EXPECT_GT(taken, ahead / 2);
        }
      }
    }
  }
}

// Weights in host memory that somebody sets through the engine, whose copies are under way when the backward begins,
// and gradients that are set before the step.
TEST(GpuOffload, WhatIsSetCountsWhereTheHostUpdatesAhead) {
  SHOAL_NEEDS_GPU();
  RunOptions options = released_at(3);
  options.device = gpu();
  options.precision = Precision::bf16;
  RunOptions ahead = options;
  ahead.offload = {.tier = Tier::host};
  ahead.offload_update = OffloadUpdate::host;
  ahead.weights_tier = Tier::host;
  ahead.speculative = true;
  EngineOptions on_gpu = two_groups();
  on_gpu.device = gpu();
  on_threads<int>(2, [&](Group& group) {
    MatrixEngine plain(group, options, on_gpu);
    MatrixEngine speculative(group, ahead, on_gpu);
    for (int step = 0; step < 12; ++step) {
      for (MatrixEngine* run : {&plain, &speculative}) {
        run->engine->with_gathered(MatrixModel::names(), Access::write, [&] {
          const at::NoGradGuard without_graph;
          run->model.tensors()[0].mul_(0.5);
        });
        run->engine->backward(run->loss(step));
        if (step % 3 == 1) {
          for (const StateRun& kept : run->engine->state().kept_gradients()) {
            const std::vector<float> values(static_cast<size_t>(kept.numel), 0.125f);
            run->engine->state().write_gradient(kept, values.data());
          }
        }
        run->engine->step();
      }
      EXPECT_TRUE(plain.weights() == speculative.weights()) << step;
    }
    EXPECT_GT(speculative.engine->meters().host().ahead_numel, 0);
    return 0;
  });
}

TEST(GpuOffload, DeviceHostAndDiskTogetherGiveTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  RunOptions options;
  options.device = gpu();
  options.precision = Precision::bf16;
  options.steps = 10;
  const std::vector<RunResult> resident = train_on_threads(2, options);
  options.offload = {.tier = Tier::disk, .nvme_path = folder.path(), .buffer_count = 3, .ratio = 0.8};
  options.offload_disk_ratio = 0.4;
  for (const int stage : {0, 3}) {
    for (const bool defer : {false, true}) {
      options.stage = stage;
      options.defer = defer;
      const std::vector<RunResult> got = train_on_threads(2, options);
      EXPECT_TRUE(got[1] == resident[1]) << fmt::format("stage {} deferred {}", stage, defer);
      EXPECT_TRUE(got[1].memory.held.host_states > 0 && got[1].memory.held.disk_states > 0);
    }
  }
}

// States come through a small ring while the next forward runs, and the host updates meanwhile. fp16 skips steps.
TEST(GpuOffload, DeferredUpdatesGiveTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  for (const int world : {1, 2}) {
    RunOptions options;
    options.device = gpu();
    options.precision = world == 1 ? Precision::fp16 : Precision::bf16;
    options.steps = 10;
    options.persistence_threshold = 0;
    const std::vector<RunResult> resident = train_on_threads(world, options);
    options.defer = true;
    options.offload = {.tier = Tier::host};
    for (const int stage : {0, 3}) {
      for (const int64_t ring : {1, 5000, 0}) {
        for (const Tier weights : {Tier::device, Tier::host}) {
          for (const OffloadUpdate update : {OffloadUpdate::automatic, OffloadUpdate::host}) {
            if (stage < 3 && weights == Tier::host) continue;
            options.stage = stage;
            options.offload_ring = ring;
            options.weights_tier = weights;
            options.offload_update = update;
            EXPECT_TRUE(train_on_threads(world, options)[0] == resident[0])
                << fmt::format("world {} stage {} ring {} weights on {}, {}", world, stage, ring, name_of(weights),
                               update == OffloadUpdate::host ? "the host updates" : "both update");
          }
        }
      }
    }
  }
}

// Worlds of one and of two ranks that share the GPU; states on it, in host memory, on disk.
TEST(GpuOffload, WeightsOffTheGpuGiveTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const int world : {1, 2}) {
    for (const Precision precision : {Precision::bf16, Precision::fp32}) {
      RunOptions options;
      options.device = gpu();
      options.precision = precision;
      options.stage = 3;
      options.steps = 10;
      options.recompute = true;
      const std::vector<RunResult> resident = train_on_threads(world, options);
      options.weights_path = folder.path();
      for (const Tier weights : {Tier::host, Tier::disk}) {
        for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
          size_t on_gpu = resident[0].memory.held.weights;
          for (const double ratio : {0.4, 1.0}) {
            options.weights_tier = weights;
            options.weights_ratio = ratio;
            options.weight_buffers = tier == Tier::host ? 1 : 2;
            options.offload = {.tier = tier, .nvme_path = folder.path()};
            options.defer = ratio < 1;
            options.offload_ring = 5000;
            const std::vector<RunResult> got = train_on_threads(world, options);
            EXPECT_TRUE(got[0] == resident[0])
                << fmt::format("world {} {} {} of the weights on {} states on {}", world, name_of(precision), ratio,
                               name_of(weights), name_of(tier));
            const MemoryPlan &held = got[0].memory.held, &planned = got[0].memory.planned;
            EXPECT_GT(weights == Tier::host ? held.host_weights : held.disk_weights, 0u);
            EXPECT_LT(held.weights, on_gpu);
            EXPECT_EQ(held.weights, planned.weights);
            EXPECT_EQ(held.host_weights, planned.host_weights);
            EXPECT_EQ(held.disk_weights, planned.disk_weights);
            EXPECT_EQ(held.state_ring, planned.state_ring);
            on_gpu = held.weights;
          }
        }
      }
    }
  }
}

// What is read and written through the engine, and left to the next one, with weights in host memory and on disk, and
// some on the GPU.
TEST(GpuOffload, WeightsOffTheGpuAreReadWrittenAndLeftAsResidentOnesAre) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const auto& [tier, ratio, defer] :
       {std::tuple(Tier::disk, 1.0, false), std::tuple(Tier::disk, 1.0, true), std::tuple(Tier::disk, 0.5, true),
        std::tuple(Tier::host, 1.0, true), std::tuple(Tier::host, 0.5, false)}) {
    RunOptions options = released_at(3);
    options.device = gpu();
    options.precision = Precision::bf16;
    EngineOptions on_gpu = two_groups();
    on_gpu.device = gpu();
    RunOptions away = options;
    away.weights_tier = tier;
    away.weights_ratio = ratio;
    away.weights_path = folder.path();
    away.defer = defer;
    on_threads<int>(2, [&](Group& group) {
      std::vector<std::string> left;
      for (const RunOptions& each : {options, away}) {
        MatrixEngine run(group, each, on_gpu);
        run.train_step(0);
        run.engine->with_gathered(MatrixModel::names(), Access::write, [&] {
          const at::NoGradGuard without_graph;
          run.model.tensors()[0].fill_(0.5);
        });
        run.train_step(1);
        run.engine.reset();
        run.engine = std::make_unique<Engine>(run.model.units(), config_of(each, group.size()), group, on_gpu);
        run.train_step(2);
        left.push_back(run.weights());
      }
      EXPECT_EQ(left[0], left[1]) << name_of(tier) << " " << ratio;
      return 0;
    });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Four square matrices, each a unit.
struct Blocks {
  explicit Blocks(int64_t width_in) : width(width_in) {
    for (int i = 0; i < 4; ++i) weights.push_back(at::full({width, width}, 0.01).set_requires_grad(true));
  }
  int64_t numel() const { return 4 * width * width; }
  std::vector<Unit> units() const {
    std::vector<Unit> units;
    for (size_t i = 0; i < weights.size(); ++i) {
      units.push_back({"block." + std::to_string(i), {{"w" + std::to_string(i), weights[i]}}});
    }
    return units;
  }
  void train_step(Engine& engine) const {
    at::Tensor x = at::ones({8, width}, weights[0].options());
    for (size_t i = 0; i < weights.size(); ++i) {
      x = engine.run(static_cast<int>(i), x, [&](const at::Tensor& in) { return at::mm(in, weights[i]).tanh(); });
    }
    engine.backward(x.sum());
    engine.step();
  }
  int64_t width;
  std::vector<at::Tensor> weights;
};

// Of each parameter 8 bytes of AdamW's moments, and in bf16 the 2 that complete the master, in fp16 its 4: nothing
// stays in the ring from one step to the next.
TEST(GpuOffload, EveryStepMovesEveryStateOfTheHostToTheGpuAndBack) {
  SHOAL_NEEDS_GPU();
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const int64_t ring : {int64_t{1}, int64_t{1} << 20, int64_t{0}}) {
      RunOptions options;
      options.stage = 3;
      options.precision = precision;
      options.clip = false;
      options.offload = {.tier = Tier::host};
      options.offload_update = OffloadUpdate::device;
      options.offload_chunk = 1 << 18;
      options.offload_ring = ring;
      EngineOptions on_gpu;
      on_gpu.device = gpu();
      const auto world = make_single_group();
      const Blocks model(1024);
      Engine engine(model.units(), config_of(options, 1), *world, on_gpu);
      const uint64_t per_step = static_cast<uint64_t>(model.numel()) * (precision == Precision::bf16 ? 10 : 12);
      HostTraffic before = engine.meters().host();
      for (int step = 0; step < 8; ++step) {
        model.train_step(engine);
        const HostTraffic now = engine.meters().host();
        if (step > 2) {  // before that the ring is filled, and grows where it may
          EXPECT_EQ(now.to_device_nbytes - before.to_device_nbytes, per_step)
              << name_of(precision) << ", ring " << ring;
          EXPECT_EQ(now.to_host_nbytes - before.to_host_nbytes, per_step) << name_of(precision) << ", ring " << ring;
        }
        before = now;
      }
    }
  }
}

// Of an engine that a program builds itself: what the GPU loses to it is within the budget.
TEST(GpuOffload, PlacementAutoStaysWithinTheBudget) {
  SHOAL_NEEDS_GPU();
  constexpr size_t kSlack = size_t{24} << 20;  // pages of the driver, and events and streams
  const auto free_nbytes = [] { return cuda::facts_of(gpu().index()).free_nbytes; };
  EngineOptions on_gpu;
  on_gpu.device = gpu();
  const auto world = make_single_group();
  struct Lost {
    size_t nbytes;
    Tier states;
  };
  const auto lost_with = [&](int64_t budget) -> Lost {
    RunOptions options;
    options.stage = 3;
    options.precision = Precision::bf16;
    Config config = config_of(options, 1);
    config.shoal.auto_placement = true;
    config.shoal.device_budget = budget;
    config.shoal.offload_chunk_size = 1 << 20;
    const size_t before = free_nbytes();
    const Blocks model(4096);
    Engine engine(model.units(), config, *world, on_gpu);
    size_t least = free_nbytes();
    for (int step = 0; step < 4; ++step) {
      model.train_step(engine);
      least = std::min(least, free_nbytes());
    }
    return {before - least, engine.config().zero.offload_optimizer.tier};
  };
  lost_with(int64_t{4} << 30);  // what torch's allocator and the runtime take once
  const Lost whole = lost_with(int64_t{4} << 30);
  EXPECT_EQ(whole.states, Tier::device);
  ASSERT_GT(whole.nbytes, size_t{600} << 20);
  for (const size_t less : {size_t{100} << 20, size_t{300} << 20}) {
    const size_t budget = whole.nbytes - less;
    const Lost within = lost_with(static_cast<int64_t>(budget));
    EXPECT_EQ(within.states, Tier::host);
    EXPECT_LE(within.nbytes, budget + kSlack);
  }
}

}  // namespace
}  // namespace shoal::testing
