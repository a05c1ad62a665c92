// A model begins with the same bits on any number of ranks and at every stage, from random numbers and from files, and
// trains with the same bits at every stage, with dropout that differs from rank to rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/safetensors.h"
#include "training/outcome.h"
#include "unit/comm/rank_threads.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal {

using testing::run_ranks;
using testing::tiny_gpt2_json;
using testing::tiny_llama_json;
using testing::TinyRun;
using testing::TinyTraining;

namespace {

const std::string kTied = R"(, "tie_word_embeddings": true, "num_key_value_heads": 1)";

// Every parameter's bytes, on each rank.
std::vector<std::map<std::string, std::string>> weights_of(const TinyRun& run, int world) {
  std::vector<std::map<std::string, std::string>> weights(static_cast<size_t>(world));
  run_ranks(world, [&](Group& group) {
    TinyTraining training(run, group);
    for (const Unit& unit : training.model->units()) {
      for (const Parameter& param : unit.params) {
        training.engine.with_gathered({param.name}, Access::read, [&] {
          weights[static_cast<size_t>(group.rank())][param.name] = testing::bytes_of(param.tensor);
        });
      }
    }
  });
  return weights;
}

// The losses of a few steps, rank by rank.
std::vector<std::vector<double>> losses_of(const TinyRun& run, int world) {
  std::vector<std::vector<double>> losses(static_cast<size_t>(world));
  run_ranks(world, [&](Group& group) {
    TinyTraining training(run, group);
    losses[static_cast<size_t>(group.rank())] = training.train(4);
  });
  return losses;
}

}  // namespace

TEST(ModelStart, HasTheSameBitsAtAnyWorldSizeAndStage) {
  for (const std::string& config : {tiny_llama_json(kTied), tiny_gpt2_json()}) {
    for (const char* precision : {"fp32", "bf16"}) {
      TinyRun run = {.config_json = config, .open = {.seed = 3}, .precision = precision, .stage = 0};
      const std::map<std::string, std::string> expected = weights_of(run, 1)[0];
      for (const int world : {1, 2, 3}) {
        for (const int stage : {0, 1, 3}) {
          run.stage = stage;
          for (const auto& weights : weights_of(run, world)) {
            EXPECT_TRUE(weights == expected) << fmt::format("{} world {} stage {}", precision, world, stage);
          }
        }
      }
    }
  }
}

TEST(ModelStart, FromAFileHasTheValuesOfTheFileOnEveryRank) {
  const auto model = testing::open_json(tiny_llama_json());
  std::vector<SafeTensor> tensors;
  for (const Unit& unit : model->units()) {
    for (const Parameter& param : unit.params) tensors.push_back({param.name, "", param.tensor.sizes().vec()});
  }
  const auto value = [](const std::string& name, int64_t i) { return static_cast<float>(name.size() * 1000 + i); };
  testing::TempFolder folder;
  testing::put_file(folder / "config.json", model->config_json());
  write_safetensors(folder.path(), tensors, {.dtype = DType::f32, .max_shard_nbytes = 1000},
                    [&](const std::string& name, int64_t begin, int64_t numel, float* out) {
                      for (int64_t i = 0; i < numel; ++i) out[i] = value(name, begin + i);
                    });
  run_ranks(3, [&](Group& group) {
    const auto opened = models::open_model(folder.path());
    Engine engine(opened->units(), TinyTraining::config_of({.config_json = ""}, 3), group);
    for (const Unit& unit : opened->units()) {
      for (const Parameter& param : unit.params) {
        engine.with_gathered({param.name}, Access::read, [&] {
          const float* values = param.tensor.const_data_ptr<float>();
          for (int64_t i = 0; i < param.tensor.numel(); ++i) ASSERT_EQ(values[i], value(param.name, i)) << param.name;
        });
      }
    }
  });
}

TEST(ModelTraining, GivesTheSameBitsAtEveryStageAlsoWithDropoutAndRecompute) {
  for (const std::string& config : {tiny_llama_json(kTied), tiny_gpt2_json()}) {
    TinyRun run = {.config_json = config, .stage = 0};
    const std::vector<std::vector<double>> expected = losses_of(run, 2);
    for (const models::Recompute recompute :
         {models::Recompute::none, models::Recompute::selective, models::Recompute::full}) {
      for (int stage = 0; stage <= 3; ++stage) {
        run.stage = stage;
        run.open.recompute = recompute;
        EXPECT_EQ(losses_of(run, 2), expected) << "stage " << stage;
      }
    }
  }
}

TEST(ModelTraining, DropoutDiffersFromRankToRank) {
  // Both ranks see the same tokens.
  const std::vector<std::vector<double>> losses = losses_of({.config_json = tiny_gpt2_json()}, 2);
  EXPECT_NE(losses[0][0], losses[1][0]);
  const std::vector<std::vector<double>> plain = losses_of({.config_json = tiny_gpt2_json(testing::kNoDropout)}, 2);
  EXPECT_EQ(plain[0][0], plain[1][0]);
}

TEST(ModelStart, EveryFamilyTrainsWithTheSameBitsAtEveryStageOnTwoRanks) {
  for (const std::string& config : testing::tiny_families()) {
    TinyRun run = {.config_json = config, .stage = 0};
    const std::vector<std::vector<double>> expected = losses_of(run, 2);
    EXPECT_NE(expected[0][3], expected[0][2]) << config;
    for (const int stage : {1, 2, 3}) {
      run.stage = stage;
      EXPECT_EQ(losses_of(run, 2), expected) << config << " stage " << stage;
    }
  }
}

}  // namespace shoal
