#include "engine/initial_values.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "shard/param_slot.h"
#include "training/matrix_engine.h"

namespace shoal {

using testing::bytes_of;
using testing::config_of;
using ::testing::HasSubstr;
using testing::MatrixEngine;
using testing::MatrixModel;
using testing::message_of;
using testing::on_threads;
using testing::released_at;
using testing::RunOptions;

TEST(InitialValues, EveryRankStartsFromRank0) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto weights = on_threads<std::string>(3, [&](Group& group) {
      MatrixEngine matrix(group, released_at(stage));  // only to have a runner
      matrix.engine.reset();
      matrix.model = MatrixModel(static_cast<uint64_t>(10 + group.rank()));
      matrix.engine = std::make_unique<Engine>(matrix.model.units(), config_of(released_at(stage), 3), group,
                                               testing::two_groups());
      return matrix.weights();
    });
    std::string expected;
    for (const at::Tensor& tensor : MatrixModel(10).tensors()) expected += bytes_of(tensor);
    for (const std::string& rank_weights : weights) EXPECT_EQ(rank_weights, expected) << "stage " << stage;
  }
}

TEST(InitialValues, WithoutBroadcastEveryRankKeepsItsShardOfItsOwn) {
  on_threads<int>(2, [](Group& group) {
    EngineOptions options = testing::two_groups();
    options.broadcast_weights = false;
    MatrixEngine matrix(group, released_at(3), options);
    EXPECT_EQ(matrix.engine->meters().traffic().received_nbytes,
              3 * sizeof(uint64_t));  // the comparison of models, and no weights
    std::string expected;
    for (const at::Tensor& tensor : MatrixModel().tensors()) expected += bytes_of(tensor);
    EXPECT_EQ(matrix.weights(), expected);
    return 0;
  });
}

// The second engine, at any stage, starts from exactly the weights that the first one left.
TEST(InitialValues, AnEngineAdoptsWhatAnotherLeft) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const auto& [first, second] :
         std::vector<std::pair<int, int>>{{3, 3}, {3, 0}, {3, 1}, {3, 2}, {0, 3}, {2, 3}, {1, 0}}) {
      on_threads<int>(2, [&, first = first, second = second](Group& group) {
        RunOptions run = released_at(first);
        run.precision = precision;
        MatrixEngine matrix(group, run);
        matrix.train_step(0);
        const std::string left = matrix.weights();
        matrix.engine.reset();
        run.stage = second;
        matrix.engine = std::make_unique<Engine>(matrix.model.units(), config_of(run, 2), group, testing::two_groups());
        EXPECT_EQ(matrix.weights(), left) << "from stage " << first << " to " << second;
        matrix.train_step(1);
        EXPECT_NE(matrix.weights(), left);
        return 0;
      });
    }
  }
}

TEST(InitialValues, AnAdoptedModelTrainsLikeAFreshOneWithTheSameValues) {
  const auto run_again = [](bool adopt) {
    return on_threads<std::string>(2, [&](Group& group) {
      MatrixEngine first(group, released_at(3));
      if (adopt) {
        first.engine.reset();
        first.engine =
            std::make_unique<Engine>(first.model.units(), config_of(released_at(3), 2), group, testing::two_groups());
      }
      for (int step = 0; step < 3; ++step) first.train_step(step);
      return first.weights();
    })[0];
  };
  EXPECT_EQ(run_again(true), run_again(false));
}

TEST(InitialValues, MakeWholeTurnsWhatAnEngineLeftIntoOrdinaryTensors) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world = 1; world <= 3; ++world) {
      on_threads<int>(world, [&](Group& group) {
        RunOptions run = released_at(stage);
        run.precision = Precision::bf16;
        MatrixEngine matrix(group, run);
        matrix.train_step(0);
        const std::string left = matrix.weights();
        matrix.engine.reset();
        EXPECT_EQ(message_of([&] { matrix.model.w.sum(); }).empty(), stage < 3);
        make_whole(matrix.model.units(), group);
        EXPECT_EQ(matrix.plain_weights(), left) << "stage " << stage << " world " << world;
        EXPECT_EQ(find_shard_record(matrix.model.w), nullptr);
        EXPECT_TRUE(matrix.model.w.requires_grad());
        EXPECT_FALSE(matrix.model.shift.requires_grad());
        at::linear(at::ones({1, testing::kWidth}, at::kBFloat16), matrix.model.w).sum().backward();
        EXPECT_TRUE(matrix.model.w.grad().defined());
        return 0;
      });
    }
  }
}

TEST(InitialValues, ShardsOfAnotherNumberOfRanksAreRefused) {
  std::vector<MatrixModel> models(2);
  on_threads<int>(2, [&](Group& group) {
    Engine engine(models[static_cast<size_t>(group.rank())].units(), config_of(released_at(3), 2), group,
                  testing::two_groups());
    return 0;
  });
  const std::unique_ptr<Group> one = make_single_group();
  EXPECT_THAT(message_of([&] { make_whole(models[0].units(), *one); }),
              HasSubstr("[parameter wte] was left sharded over 2 ranks, and this group has 1"));
  EXPECT_THAT(message_of([&] { Engine(models[0].units(), config_of(released_at(3), 1), *one, testing::two_groups()); }),
              HasSubstr("was left sharded over 2 ranks"));
}

namespace {

// Element i of parameter p is a number that no other element has; counts what was read.
class Numbered final : public ValueSource {
 public:
  Numbered(float first, std::atomic<int64_t>* read) : first_(first), read_(read) {}
  void read(int64_t begin, int64_t numel, float* values) const override {
    for (int64_t i = 0; i < numel; ++i) values[i] = first_ + static_cast<float>(begin + i);
    *read_ += numel;
  }

 private:
  float first_;
  std::atomic<int64_t>* read_;
};

}  // namespace

TEST(InitialValues, PlaceholdersGetTheirValuesFromSourcesAndEachRankReadsOnlyWhatItKeeps) {
  for (int stage = 0; stage <= 3; ++stage) {
    on_threads<int>(2, [&](Group& group) {
      std::atomic<int64_t> read = 0;
      const std::vector<Unit> units = {
          {"a",
           {{.name = "a.w", .tensor = make_placeholder({3, 1000}), .source = std::make_shared<Numbered>(0, &read)}}},
          {"b",
           {{.name = "b.w", .tensor = make_placeholder({777}), .source = std::make_shared<Numbered>(9e4f, &read)}}}};
      EXPECT_THAT(message_of([&] { units[0].params[0].tensor.sum(); }), HasSubstr("is a placeholder without memory"));
      Config config = config_of(released_at(stage), 2);
      Engine engine(units, config, group);
      const int64_t whole = 3000 + 777;
      EXPECT_LE(read, stage == 3 ? whole * 3 / 4 : whole);
      engine.with_gathered({"a.w", "b.w"}, Access::read, [&] {
        EXPECT_EQ(units[0].params[0].tensor[2][999].item<float>(), 2999.0f);
        EXPECT_EQ(units[1].params[0].tensor[5].item<float>(), 9e4f + 5.0f);
        EXPECT_TRUE(at::equal(units[0].params[0].tensor.flatten(), at::arange(3000, at::kFloat)));
      });
      return 0;
    });
  }
}

}  // namespace shoal
