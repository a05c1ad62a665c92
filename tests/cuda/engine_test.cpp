// What an engine promises of a GPU's memory and state: the planned bytes are those that the GPU loses, parameters are
// released and come back, and the state is the same bits wherever it is read.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>

#include <cmath>

#include "cuda/torch_gpu.h"
#include "training/matrix_engine.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

EngineOptions on_gpu() {
  EngineOptions options = two_groups();
  options.device = gpu();
  return options;
}

// One unit of a few hundred megabytes, so that the driver's own pages do not matter.
struct LargeModel {
  LargeModel() {
    for (int i = 0; i < 4; ++i) weights.push_back(at::empty({4096, 4096}).normal_().set_requires_grad(true));
  }
  std::vector<Unit> units() const {
    std::vector<Unit> units;
    for (size_t i = 0; i < weights.size(); ++i) {
      units.push_back({"block." + std::to_string(i), {{"w" + std::to_string(i), weights[i]}}});
    }
    return units;
  }
  std::vector<at::Tensor> weights;
};

TEST(GpuMemory, WhatThePlanSaysIsWhatTheGpuLoses) {
  SHOAL_NEEDS_GPU();
  at::empty({1}, gpu());  // torch's own start-up is not ours
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const int stage : {0, 3}) {
      RunOptions options;
      options.stage = stage;
      options.precision = precision;
      const Config config = config_of(options, 1);
      const auto world = make_single_group();
      {  // streams and pinned memory that the runtime makes once
        LargeModel first;
        Engine warm(first.units(), config, *world, on_gpu());
      }
      const size_t free_before = cuda::facts_of(gpu().index()).free_nbytes;
      {
        LargeModel model;
        Engine engine(model.units(), config, *world, on_gpu());
        const size_t free_now = cuda::facts_of(gpu().index()).free_nbytes;
        const MemoryReport report = engine.meters().memory();
        EXPECT_EQ(report.held.weights, report.planned.weights);
        EXPECT_EQ(report.held.gradients, report.planned.gradients);
        EXPECT_EQ(report.held.states, report.planned.states);
        const size_t held = report.held.weights + report.held.gradients + report.held.states +
                            report.held.reduce_slots + report.held.gather_arena;
        constexpr size_t kPage = size_t{2} << 20;  // the driver gives memory in pages of this size
        EXPECT_NEAR(static_cast<double>(free_before - free_now), static_cast<double>(held), 12.0 * kPage)
            << "stage " << stage;
      }
      EXPECT_EQ(cuda::facts_of(gpu().index()).free_nbytes, free_before) << "a destroyed engine keeps GPU memory";
    }
  }
}

TEST(GpuEngine, AReleasedParameterThatIsTouchedThrowsAndTheProcessLives) {
  SHOAL_NEEDS_GPU();
  const auto world = make_single_group();
  MatrixEngine matrix(*world, released_at(3), on_gpu());
  EXPECT_THAT(message_of([&] { at::sum(matrix.model.w1); }), HasSubstr("[parameter twice.w1] is released"));
  EXPECT_TRUE(std::isfinite(matrix.train_step(0).grad_norm));
  EXPECT_THAT(message_of([&] { matrix.model.w1.clone(); }), HasSubstr("is released"));
}

TEST(GpuEngine, WhatIsWrittenThroughWithGatheredIsTheValueEverywhere) {
  SHOAL_NEEDS_GPU();
  for (const int stage : {0, 1, 2, 3}) {
    on_threads<int>(2, [&](Group& group) {
      MatrixEngine matrix(group, released_at(stage), on_gpu());
      matrix.engine->with_gathered({"drop.w"}, Access::write, [&] {
        at::NoGradGuard without_graph;
        matrix.model.w.fill_(group.rank() == 0 ? 2.0 : 3.0);
      });
      matrix.engine->with_gathered({"drop.w"}, Access::read, [&] {
        EXPECT_TRUE(matrix.model.w.is_cuda());
        EXPECT_TRUE(matrix.model.w.eq(2.0).all().item<bool>()) << "stage " << stage;
      });
      return 0;
    });
  }
}

TEST(GpuEngine, MakeWholeGivesOrdinaryTensorsOnTheGpu) {
  SHOAL_NEEDS_GPU();
  on_threads<int>(2, [&](Group& group) {
    std::string expected;
    MatrixModel model;
    {
      Engine engine(model.units(), config_of(released_at(3), 2), group, on_gpu());
      engine.with_gathered({"drop.w"}, Access::read, [&] { expected = bytes_of(model.w.to(at::kCPU)); });
    }
    make_whole(model.units(), group);
    EXPECT_TRUE(model.w.is_cuda());
    EXPECT_EQ(bytes_of(model.w.detach().to(at::kCPU)), expected);
    return 0;
  });
}

TEST(GpuMemory, RunningOutOfItNamesTheUnitAndWhatWouldFit) {
  SHOAL_NEEDS_GPU();
  const auto world = make_single_group();
  MatrixEngine matrix(*world, released_at(3), on_gpu());
  const auto too_large = static_cast<int64_t>(cuda::facts_of(gpu().index()).total_nbytes);
  const std::string message = message_of([&] {
    matrix.engine->run(1, at::ones({2, kWidth}, gpu()), [&](const at::Tensor& x) {
      return x.add(at::empty({too_large}, x.options().dtype(at::kByte)).sum());
    });
  });
  EXPECT_THAT(message, HasSubstr("[GPU memory, forward of unit twice]"));
  EXPECT_THAT(message, HasSubstr("What makes it fit"));
}

// Every state of an engine on the GPU, written into one on the CPU and read back there.
TEST(GpuEngine, ItsStateIsTheSameBitsOnTheCpu) {
  SHOAL_NEEDS_GPU();
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto world = make_single_group();
    RunOptions options = released_at(3);
    options.precision = precision;
    MatrixEngine there(*world, options, on_gpu());
    for (int step = 0; step < 5; ++step) there.train_step(step);
    MatrixEngine here(*world, options);
    const std::vector<StateRun> runs = there.engine->state().owned();
    for (const StateRun& run : runs) {
      std::vector<float> values(static_cast<size_t>(run.numel));
      there.engine->state().read(run, values.data());
      here.engine->state().write(run, values.data());
    }
    here.engine->state().finish_restore(there.engine->state().progress());
    for (const StateRun& run : runs) {
      std::vector<float> first(static_cast<size_t>(run.numel)), second(first.size());
      there.engine->state().read(run, first.data());
      here.engine->state().read(run, second.data());
      EXPECT_EQ(0, std::memcmp(first.data(), second.data(), first.size() * sizeof(float)));
    }
    EXPECT_EQ(here.engine->state().progress().applied_steps, 5);
  }
}

}  // namespace
}  // namespace shoal::testing
