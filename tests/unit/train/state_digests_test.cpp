#include "train/state_digests.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/digest.h"
#include "base/json.h"

namespace shoal::train {
namespace {

// Two units, a frozen parameter among them, with states that are a function of parameter, kind and index. `changed`
// elements on, one weight is another.
StateDigests digests_at(int ranks, int stage, const std::string& sixteen_bits, int64_t changed = -1) {
  auto groups = make_thread_groups(ranks);
  std::vector<StateDigests> found(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Group& world = *groups[static_cast<size_t>(rank)];
      const Config config = Config::from_text(
          R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}})",
          {.world_size = ranks}, "config",
          {fmt::format("zero_optimization.stage={}", stage), "zero_optimization.stage3_param_persistence_threshold=8",
           fmt::format("bf16.enabled={}", sixteen_bits == "bf16")});
      const auto weight = [](std::vector<int64_t> shape, bool trained) {
        return at::full(shape, 0.5).set_requires_grad(trained);
      };
      Engine engine(
          {{.name = "a",
            .params = {{.name = "a.w", .tensor = weight({31}, true)}, {.name = "a.b", .tensor = weight({3}, true)}}},
           {.name = "b",
            .params = {{.name = "b.frozen", .tensor = weight({17}, false)},
                       {.name = "b.w", .tensor = weight({5, 7}, true)}}}},
          config, world);
      for (const StateRun& run : engine.state().kept()) {
        if (!engine.state().params()[static_cast<size_t>(run.param)].trainable) continue;
        std::vector<float> values;
        for (int64_t i = run.begin; i < run.begin + run.numel; ++i) {
          values.push_back(std::sin(static_cast<float>(i + 100 * run.param + 1000 * static_cast<int>(run.kind))));
          if (run.param == 3 && run.kind == StateKind::weight && i == changed) values.back() += 1.0f;
        }
        engine.state().write(run, values.data());
      }
      engine.state().finish_restore({});
      found[static_cast<size_t>(rank)] = digest_states(engine, world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StateDigests& each : found) EXPECT_EQ(to_line(1, each), to_line(1, found[0])) << "all ranks get the same";
  return found[0];
}

TEST(StateDigests, AreTheSameAtEveryStageAndNumberOfRanks) {
  for (const char* sixteen_bits : {"", "bf16"}) {
    const std::string expected = to_line(4, digests_at(1, 0, sixteen_bits));
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int ranks : {1, 2, 3}) {
        EXPECT_EQ(to_line(4, digests_at(ranks, stage, sixteen_bits)), expected) << stage << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(StateDigests, OneElementShowsInItsParameterAlone) {
  const StateDigests before = digests_at(2, 3, "bf16"), after = digests_at(2, 3, "bf16", 20);
  EXPECT_NE(after.all(), before.all());
  ASSERT_EQ(after.params.size(), 4u);
  for (size_t param = 0; param < 3; ++param) EXPECT_EQ(after.params[param].states, before.params[param].states);
  EXPECT_EQ(after.params[3].name, "b.w");
  EXPECT_NE(after.params[3].states[0], before.params[3].states[0]);
  EXPECT_EQ(after.params[3].states[1], before.params[3].states[1]);
}

TEST(StateDigests, ALineNamesUnitsParametersAndStates) {
  StateDigests digests;
  digests.params = {{"a.w", "a", {{StateKind::weight, 1}, {StateKind::first_moment, 0xfedcba9876543210ull}}},
                    {"b.w", "b", {{StateKind::weight, 2}}}};
  const json::Value line = json::parse(to_line(7, digests), "line");
  EXPECT_EQ(line.find("step")->as_integer(), 7);
  EXPECT_EQ(line.find("digest")->as_text(), digest_text(digests.all()));
  const json::Value& first = *line.find("units")->find("a")->find("a.w");
  EXPECT_EQ(first.find("weight")->as_text(), "0000000000000001");
  EXPECT_EQ(first.find("first_moment")->as_text(), "fedcba9876543210");
  EXPECT_EQ(line.find("units")->find("b")->find("b.w")->as_object().size(), 1u);
}

}  // namespace
}  // namespace shoal::train
