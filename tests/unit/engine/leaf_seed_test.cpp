#include "engine/leaf_seed.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/engine.h"

namespace shoal {
namespace {

TEST(LeafSeed, NoNumberOfRanksShowsInIt) {
  for (int64_t leaf = 0; leaf < 24; ++leaf) {
    const uint64_t expected = leaf_seed(7, {.step = 3, .micro_step = leaf});
    for (const int ranks : {2, 3, 4, 6, 8}) {
      EXPECT_EQ(leaf_seed(7, {3, leaf / ranks, static_cast<int>(leaf % ranks), ranks}), expected) << ranks;
    }
  }
}

TEST(LeafSeed, SpreadsOverTheBitsThatTheCpuTakes) {
  std::set<uint32_t> seeds;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (int64_t step = 0; step < 20; ++step) {
      for (int64_t leaf = 0; leaf < 20; ++leaf) {
        seeds.insert(static_cast<uint32_t>(leaf_seed(seed, {.step = step, .micro_step = leaf})));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 4u * 20 * 20);
}

// What a model of one weight draws: by (step, leaf), in training; a value for each draw in forward and in backward.
using Draws = std::map<std::pair<int64_t, int64_t>, std::vector<float>>;
enum class Way { plain, recomputed, evaluated_between };

// Steps first to last of a run of 6 leaves a step.
Draws draws_of(int ranks, int64_t leaf_seed, Way way, int64_t first = 0, int64_t last = 3) {
  auto groups = make_thread_groups(ranks);
  std::vector<Draws> found(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Draws& own = found[static_cast<size_t>(rank)];
      Group& world = *groups[static_cast<size_t>(rank)];
      Config config = Config::from_text(
          R"({"train_batch_size": 6, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
              "optimizer": {"type": "SGD", "params": {"lr": 0.5}}})",
          {.world_size = ranks});
      config.shoal.leaf_seed = leaf_seed;
      const at::Tensor weight = at::ones({3}).set_requires_grad(true);
      Engine engine({{.name = "unit", .params = {{.name = "w", .tensor = weight}}}}, config, world, {.seed = 1});
      EngineProgress progress;
      progress.applied_steps = first;
      engine.state().finish_restore(progress);
      for (int64_t step = first; step < last; ++step) {
        for (int64_t micro_step = 0; micro_step < 6 / ranks; ++micro_step) {
          std::vector<float>& draws = own[{step, micro_step * ranks + rank}];
          const auto unit = [&](const at::Tensor& x) {
            return engine.run(0, x, [&](const at::Tensor& t) {
              draws.push_back(at::empty({1}).uniform_(0, 1, engine.generator()).item<float>());
              return t.mul(weight);
            });
          };
          const at::Tensor x = at::ones({3}).set_requires_grad(true);
          const at::Tensor y = way == Way::recomputed ? engine.recompute(x, unit) : unit(unit(x));
          engine.backward(y.sum());
          engine.step();
          if (way != Way::evaluated_between) continue;
          engine.evaluate([&] { unit(at::ones({3})); });
          draws.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Draws all;
  for (Draws& own : found) all.merge(own);
  return all;
}

TEST(LeafSeed, ForwardsDrawTheSameAtEveryNumberOfRanksAndInEveryLeafAnother) {
  const Draws one = draws_of(1, 5, Way::plain);
  ASSERT_EQ(one.size(), 3u * 6);
  std::set<float> numbers;
  for (const auto& [leaf, draws] : one) numbers.insert(draws.begin(), draws.end());
  EXPECT_EQ(numbers.size(), 2u * 3 * 6);
  for (const int ranks : {2, 3, 6}) EXPECT_EQ(draws_of(ranks, 5, Way::plain), one) << ranks;
  EXPECT_NE(draws_of(1, 6, Way::plain), one);
  EXPECT_NE(draws_of(2, -1, Way::plain), draws_of(1, -1, Way::plain)) << "without it each rank draws its own";
}

TEST(LeafSeed, EvaluationsInBetweenChangeNothing) {
  EXPECT_EQ(draws_of(2, 5, Way::evaluated_between), draws_of(1, 5, Way::plain));
}

// Also where the first use of a pass is inside the region, which has no graph.
TEST(LeafSeed, RecomputeDrawsTheSameAgain) {
  const Draws plain = draws_of(1, 5, Way::plain);
  for (const auto& [leaf, draws] : draws_of(2, 5, Way::recomputed)) {
    ASSERT_EQ(draws.size(), 2u);
    EXPECT_EQ(draws[0], draws[1]);
    EXPECT_EQ(draws[0], plain.at(leaf)[0]);
  }
}

TEST(LeafSeed, ARunThatGoesOnDrawsWhatItWouldHaveDrawn) {
  Draws parts = draws_of(3, 5, Way::plain, 0, 2);
  parts.merge(draws_of(2, 5, Way::plain, 2, 3));
  EXPECT_EQ(parts, draws_of(1, 5, Way::plain));
}

}  // namespace
}  // namespace shoal
