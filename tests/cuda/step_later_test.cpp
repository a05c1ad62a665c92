// A step on a GPU does not wait for the GPU, and what it comes to does not depend on when its result is read.
#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/torch_gpu.h"
#include "training/matrix_engine.h"

namespace shoal::testing {
namespace {

constexpr int kSteps = 24;

// Everything that a run comes to.
struct Outcome {
  std::vector<double> numbers;  // norms, loss scales, rates, counts
  std::string weights;
  double loss_scale = 0;
  bool operator==(const Outcome& other) const {
    return RunResult::bits(numbers) == RunResult::bits(other.numbers) && weights == other.weights &&
           loss_scale == other.loss_scale;
  }
};

enum class Reading { at_once, a_step_later, by_the_engine };

Config scaled(const RunOptions& options, int world) {
  Config config = config_of(options, world);
  config.fp16.loss_scale_window = 3;
  config.fp16.hysteresis = 2;
  config.scheduler.kind = SchedulerKind::warmup;
  config.scheduler.params = {{"warmup_num_steps", 15}, {"warmup_min_lr", 1e-4}, {"warmup_max_lr", 3e-3}};
  return config;
}

Outcome train(Group& world, const RunOptions& options, Reading reading) {
  at::set_num_threads(1);
  MatrixModel model;
  EngineOptions engine_options = two_groups();
  engine_options.device = gpu();
  Engine engine(model.units(), scaled(options, world.size()), world, engine_options);
  std::vector<PendingStep> steps;
  Outcome outcome;
  const auto note = [&](const StepResult& result) {
    outcome.numbers.insert(outcome.numbers.end(),
                           {result.applied ? 1.0 : 0.0, result.grad_norm, result.loss_scale,
                            static_cast<double>(result.applied_steps), static_cast<double>(result.skipped_steps)});
    outcome.numbers.insert(outcome.numbers.end(), result.lrs.begin(), result.lrs.end());
  };
  for (int step = 0; step < kSteps; ++step) {
    std::optional<PendingStep> pending;
    for (int64_t micro = 0; micro < options.accumulation; ++micro) {
      at::Tensor loss = forward(engine, model, batch_of(step, micro, world.rank()), {0.0, false, true});
      if (step % 7 == 3 || step == 11 || step == 12) loss = loss.mul(INFINITY);
      engine.backward(loss);
      pending = engine.step_later();
    }
    steps.push_back(*pending);
    if (reading == Reading::at_once) steps.back().result();
    if (reading == Reading::a_step_later && step > 0) steps[static_cast<size_t>(step - 1)].result();
  }
  outcome.loss_scale = engine.state().loss_scale();
  for (const PendingStep& step : steps) note(step.result());
  engine.with_gathered(MatrixModel::names(), Access::read, [&] {
    for (const at::Tensor& tensor : model.tensors()) outcome.weights += bytes_of(tensor.detach().to(at::kCPU));
  });
  return outcome;
}

TEST(GpuStepLater, WhenAResultIsReadChangesNoBit) {
  SHOAL_NEEDS_GPU();
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    for (const int world : {1, 2}) {
      for (const int stage : {0, 3}) {
        RunOptions options;
        options.precision = precision;
        options.stage = stage;
        options.accumulation = world;  // several micro-steps too
        const auto outcomes = [&](Reading reading) {
          return on_threads<Outcome>(world, [&](Group& group) { return train(group, options, reading); });
        };
        const std::vector<Outcome> at_once = outcomes(Reading::at_once);
        for (const Reading reading : {Reading::a_step_later, Reading::by_the_engine}) {
          EXPECT_TRUE(outcomes(reading) == at_once)
              << "world " << world << " stage " << stage << " reading " << static_cast<int>(reading);
        }
      }
    }
  }
}

TEST(GpuStepLater, StatesThatPassThroughTheGpuHaveTheSameBits) {
  SHOAL_NEEDS_GPU();
  RunOptions resident, streamed;
  resident.precision = streamed.precision = Precision::fp16;
  resident.stage = streamed.stage = 3;
  streamed.offload.tier = Tier::host;
  streamed.offload_ring = 4096;
  const auto outcome_of = [](const RunOptions& options, Reading reading) {
    const auto world = make_single_group();
    return train(*world, options, reading);
  };
  const Outcome expected = outcome_of(resident, Reading::at_once);
  EXPECT_TRUE(outcome_of(streamed, Reading::at_once) == expected);
  EXPECT_TRUE(outcome_of(streamed, Reading::by_the_engine) == expected);
}

// Holds up the legacy default stream, on which the engine here computes, until it is let go.
class Blockade {
 public:
  Blockade() {
    cudaStreamSynchronize(nullptr);
    cudaLaunchHostFunc(
        nullptr,
        [](void* flag) {
          const auto begin = std::chrono::steady_clock::now();
          while (!static_cast<std::atomic<bool>*>(flag)->load() &&
                 std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        },
        &open_);
  }
  ~Blockade() {
    open();
    cudaStreamSynchronize(nullptr);
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_ = false;
};

TEST(GpuStepLater, ABackwardAndAStepReturnWhileTheGpuIsHeldUp) {
  SHOAL_NEEDS_GPU();
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      for (const int stage : {0, 3}) {
        RunOptions options;
        options.precision = precision;
        options.stage = stage;
        options.offload.tier = tier;
        options.offload_ring = tier == Tier::host ? 4096 : 0;
        options.offload_update = OffloadUpdate::device;  // the host waits where it has a part in the update
        const auto world = make_single_group();
        EngineOptions engine_options = two_groups();
        engine_options.device = gpu();
        MatrixEngine matrix(*world, scaled(options, 1), engine_options);
        // Without the matrix's own losses, which read a number of the GPU.
        const auto lone_pass = [&] {
          const at::Tensor input =
              at::ones({2, kWidth}, at::TensorOptions(gpu()).dtype(matrix.model.sometimes.scalar_type()));
          const at::Tensor out =
              matrix.engine->run(3, input, [&](const at::Tensor& t) { return at::linear(t, matrix.model.sometimes); });
          matrix.engine->backward(out.sum().to(at::kFloat));
        };
        // Tables, rings, the allocator's blocks, kernels that are loaded when they are first used.
        for (int step = 0; step < 5; ++step) matrix.train_step(step);
        for (int step = 0; step < 2; ++step) {
          lone_pass();
          matrix.engine->step();
        }

        const at::Tensor first_loss = matrix.loss(5);
        Blockade blockade;
        matrix.engine->backward(first_loss);
        const PendingStep first = matrix.engine->step_later();
        EXPECT_FALSE(first.known()) << "the step was decided on a stream that stands still";
        // The next boundary too: what the host has not read, it offers both ways.
        lone_pass();
        const PendingStep second = matrix.engine->step_later();
        EXPECT_FALSE(second.known());
        EXPECT_FALSE(first.known());
        blockade.open();
        EXPECT_TRUE(first.result().applied) << "stage " << stage;
        EXPECT_EQ(second.result().applied_steps, first.result().applied_steps + 1);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
