// Memory is what the plan says, to the byte, and the ledger is what the system says.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <sstream>

#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

TEST(Memory, HeldBytesEqualThePlanAtEveryStageAndPrecision) {
  for (const int world : {1, 2, 3, 4}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const int64_t accumulation : {1, 3}) {
        for (int stage = 0; stage <= 3; ++stage) {
          RunOptions options;
          options.stage = stage;
          options.precision = precision;
          options.accumulation = accumulation;
          options.steps = 2;
          options.overflow_step = -1;
          options.skip_units = false;
          for (const RunResult& rank : train_on_threads(world, options)) {
            EXPECT_EQ(rank.memory.held.weights, rank.memory.planned.weights);
            EXPECT_EQ(rank.memory.held.gradients, rank.memory.planned.gradients);
            EXPECT_EQ(rank.memory.held.states, rank.memory.planned.states);
            EXPECT_EQ(rank.memory.held.reduce_slots, rank.memory.planned.reduce_slots);
            EXPECT_EQ(rank.memory.user_gathered, 0u);
          }
        }
      }
    }
  }
}

// A model of equal units of `numel` elements, large enough that padding does not matter: the formulas of the paper.
struct Stack {
  std::vector<at::Tensor> weights;
  // In mappings of their own, so that freeing them shows at once: torch's allocator may keep what it is given back.
  explicit Stack(int units, int64_t side) {
    const size_t nbytes = static_cast<size_t>(side * side) * sizeof(float);
    for (int unit = 0; unit < units; ++unit) {
      void* memory = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      at::Tensor weight = at::from_blob(memory, {side, side}, [nbytes](void* data) { munmap(data, nbytes); });
      weights.push_back(weight.fill_(0.01).set_requires_grad(true));
    }
  }
  std::vector<Unit> units() const {
    std::vector<Unit> all;
    for (size_t unit = 0; unit < weights.size(); ++unit) {
      all.push_back({"u" + std::to_string(unit), {{"w" + std::to_string(unit), weights[unit]}}});
    }
    return all;
  }
  at::Tensor loss(Engine& engine) const {
    at::Tensor x = at::ones({2, weights[0].size(0)});
    for (size_t unit = 0; unit < weights.size(); ++unit) {
      x = engine.run(static_cast<int>(unit), x, [&](const at::Tensor& t) { return at::linear(t, weights[unit]); });
    }
    return x.sum();
  }
};

Config stack_config(int stage, int world, int64_t prefetch) {
  RunOptions options;
  options.stage = stage;
  options.prefetch = prefetch;
  options.persistence_threshold = 0;
  Config config = config_of(options, world);
  config.zero.reduce_bucket_size = 500'000'000;
  return config;
}

TEST(Memory, ModelStatesFollowTheFormulaOfEachStage) {
  const int world = 4;
  const size_t numel = 6 * 128 * 128;
  const size_t expected[] = {16 * numel, 8 * numel + 8 * numel / 4, 4 * numel + 12 * numel / 4, 16 * numel / 4};
  for (int stage = 0; stage <= 3; ++stage) {
    on_threads<bool>(world, [&](Group& group) {
      at::set_num_threads(1);
      Stack model(6, 128);
      Engine engine(model.units(), stack_config(stage, world, 0), group);
      engine.backward(model.loss(engine));
      engine.step();
      EXPECT_EQ(engine.meters().memory().held.model_states(), expected[stage]) << "stage " << stage;
      return true;
    });
  }
}

TEST(Memory, TheArenaIsTheLargestLiveSetOfTheSchedule) {
  const size_t unit_nbytes = 128 * 128 * 4;  // one granule
  for (const int64_t prefetch_units : {0, 1, 2, 100}) {
    on_threads<bool>(2, [&](Group& group) {
      at::set_num_threads(1);
      Stack model(6, 128);
      Engine engine(model.units(), stack_config(3, 2, prefetch_units * 128 * 128), group);
      for (int step = 0; step < 3; ++step) {
        engine.backward(model.loss(engine));
        engine.step();
      }
      const MemoryReport memory = engine.meters().memory();
      EXPECT_EQ(memory.held.gather_arena, memory.planned.gather_arena);
      EXPECT_EQ(memory.held.gather_arena, unit_nbytes * static_cast<size_t>(std::min<int64_t>(6, 1 + prefetch_units)));
      return true;
    });
  }
}

// Resident bytes of this process, by the kernel's own account.
size_t resident_nbytes() {
  std::ifstream smaps("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(smaps, line)) {
    if (line.rfind("Rss:", 0) != 0) continue;
    std::istringstream text(line.substr(4));
    size_t kib = 0;
    text >> kib;
    return kib * 1024;
  }
  return 0;
}

TEST(Memory, TheLedgerAgreesWithTheKernelAndFreedMemoryIsFreed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is resident beside ours";
#endif
  auto world = make_single_group();
  at::set_num_threads(1);
  const double mib = 1024.0 * 1024.0;
  for (int stage = 0; stage <= 3; ++stage) {
    {
      Stack warm(2, 64);
      Engine engine(warm.units(), stack_config(stage, 1, 0), *world);
      engine.backward(warm.loss(engine));
      engine.step();
    }
    auto model = std::make_unique<Stack>(64, 256);  // 16 MiB of weights in small units
    const size_t before = resident_nbytes();
    auto engine = std::make_unique<Engine>(model->units(), stack_config(stage, 1, 0), *world);
    for (int step = 0; step < 2; ++step) {
      engine->backward(model->loss(*engine));
      engine->step();
    }
    const size_t held = engine->meters().memory().held.total();
    const size_t during = resident_nbytes();
    // The user's own 16 MiB of weights went back when the engine took the parameters over.
    EXPECT_NEAR(static_cast<double>(during - before) / mib, static_cast<double>(held) / mib - 16.0, 6.0)
        << "stage " << stage;
    engine.reset();
    model.reset();
    EXPECT_LT(static_cast<double>(resident_nbytes()) / mib, static_cast<double>(before) / mib - 16.0 + 6.0)
        << "stage " << stage;
  }
}

}  // namespace
}  // namespace shoal::testing
