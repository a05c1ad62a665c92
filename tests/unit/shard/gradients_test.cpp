#include "shard/gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include <cmath>

#include <algorithm>
#include <numeric>

#include "kernels/convert.h"
#include "layout/norm_tops.h"
#include "unit/comm/rank_threads.h"
#include "unit/shard/model_parts.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;
using testing::ModelParts;
using testing::tensor_of;
using testing::unit_spec;

namespace {

// What the update reads of a flat on this rank, as fp32.
std::vector<float> shard_of(const ModelParts& parts, const Gradients& gradients, int unit = 0, int flat = 0) {
  const int64_t numel = parts.layout.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].shard_numel;
  std::vector<float> values(static_cast<size_t>(numel));
  kernels::convert(gradients.shard(unit, flat), gradients.rule(unit, flat).kept, values.data(), DType::f32, numel);
  return values;
}

float grad_at(int rank, int64_t i) { return static_cast<float>(rank + 1) * static_cast<float>(i % 50 + 1); }

std::vector<float> grad_of(int rank, int64_t numel) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(grad_at(rank, i));
  return values;
}

ReduceOptions mean_over(int world) {
  ReduceOptions reduce;
  reduce.factor = 1.0f / static_cast<float>(world);
  reduce.piece_numel = 100;
  return reduce;
}

// The shard after micro-steps with these values for all elements of one parameter, one rank.
float after_micro_steps(int stage, const std::vector<float>& micro_steps, GradientOptions options, DType dtype) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {3}, dtype)}, stage, *group);
  options.accumulation_steps = static_cast<int64_t>(micro_steps.size());
  Gradients gradients = parts.gradients(options);
  for (size_t step = 0; step < micro_steps.size(); ++step) {
    gradients.begin_micro_step(static_cast<int64_t>(step));
    gradients.set_last(step + 1 == micro_steps.size());
    gradients.deposit(0, 0, tensor_of(std::vector<float>(3, micro_steps[step])));
    gradients.reduce(0);
    gradients.wait();
  }
  return shard_of(parts, gradients)[2];
}

}  // namespace

TEST(Gradients, AGradientMayBeMadeWhereItIsKept) {
  for (int stage = 0; stage <= 3; ++stage) {
    testing::run_ranks(2, [&](Group& group) {
      const auto reduced = [&](bool in_place) {
        ModelParts parts({unit_spec(0, {333})}, stage, group);
        Gradients gradients = parts.gradients({}, mean_over(2));
        std::vector<float> shard;
        for (int step = 0; step < 2; ++step) {  // what the first step left there does not show in the second
          gradients.begin_micro_step(0);
          const std::vector<float> values = grad_of(group.rank() + step, 333);
          at::Tensor grad = tensor_of(values);
          if (in_place) {
            auto* target = reinterpret_cast<float*>(gradients.target(0, 0, DType::f32));
            EXPECT_NE(target, nullptr);
            EXPECT_EQ(gradients.target(0, 0, DType::f32), nullptr) << "given out twice";
            std::copy(values.begin(), values.end(), target);
            grad = at::from_blob(target, {333});
          }
          gradients.deposit(0, 0, grad);
          EXPECT_EQ(gradients.target(0, 0, DType::f32), nullptr) << "the next is added";
          gradients.deposit(0, 0, tensor_of(values));
          gradients.reduce(0);
          gradients.wait();
          shard = shard_of(parts, gradients);
        }
        return shard;
      };
      EXPECT_EQ(reduced(true), reduced(false)) << "stage " << stage;
    });
  }
}

TEST(Gradients, RoomThatWasNotUsedIsZeroed) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {3})}, 3, *group);
  Gradients gradients = parts.gradients({});
  gradients.begin_micro_step(0);
  *reinterpret_cast<float*>(gradients.target(0, 0, DType::f32)) = 7;
  gradients.reduce(0);
  gradients.wait();
  EXPECT_EQ(shard_of(parts, gradients)[0], 0);
}

TEST(Gradients, AGradientMadeWhereAnotherOneIsAlreadyIsNoticed) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {3})}, 3, *group);
  Gradients gradients = parts.gradients({});
  gradients.begin_micro_step(0);
  auto* target = reinterpret_cast<float*>(gradients.target(0, 0, DType::f32));
  gradients.deposit(0, 0, tensor_of(std::vector<float>(3, 1)));
  EXPECT_THAT(message_of([&] { gradients.deposit(0, 0, at::from_blob(target, {3})); }), HasSubstr("already"));
}

TEST(Gradients, HasNoRoomForWhatIsAddedOrConverted) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {3}, DType::bf16)}, 0, *group);
  GradientOptions options;
  options.accumulation_steps = 2;
  Gradients gradients = parts.gradients(options);
  gradients.begin_micro_step(0);
  gradients.set_last(false);
  const DType kept = gradients.rule(0, 0).kept;
  EXPECT_EQ(gradients.target(0, 0, kept == DType::bf16 ? DType::f32 : DType::bf16), nullptr);
  gradients.deposit(0, 0, tensor_of(std::vector<float>(3, 1)));
  gradients.reduce(0);
  gradients.begin_micro_step(1);
  EXPECT_EQ(gradients.target(0, 0, kept), nullptr);
}

// Of this rank's shard of the first flat.
double squares_of(const ModelParts& parts, Gradients& gradients) {
  const FlatTops flat = norm_tops(parts.layout).flats[0];
  const double* sums = gradients.sum_shard_squares();
  return std::accumulate(sums, sums + flat.places, 0.0);
}

TEST(Gradients, EveryStageGivesEachRankItsShardOfTheMean) {
  for (int world = 1; world <= 4; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      testing::run_ranks(world, [&](Group& group) {
        ModelParts parts({unit_spec(0, {333})}, stage, group);
        Gradients gradients = parts.gradients({}, mean_over(world));
        gradients.begin_micro_step(0);
        gradients.deposit(0, 0, tensor_of(grad_of(group.rank(), 333)));
        gradients.reduce(0);
        gradients.wait();
        const FlatLayout& flat = parts.layout.units[0].flats[0];
        const std::vector<float> shard = shard_of(parts, gradients);
        double squares = 0;
        for (int64_t i = 0; i < flat.shard_numel; ++i) {
          const int64_t at = group.rank() * flat.shard_numel + i;
          float sum = 0;
          for (int rank = 0; rank < world; ++rank) sum += grad_at(rank, at);
          const float expected = at < 333 ? sum * (1.0f / static_cast<float>(world)) : 0.0f;
          ASSERT_EQ(shard[static_cast<size_t>(i)], expected) << "world " << world << " stage " << stage << " at " << at;
          squares += static_cast<double>(expected) * expected;
        }
        EXPECT_NEAR(squares_of(parts, gradients), squares, 1e-9 * squares);
        EXPECT_EQ(gradients.whole(0, 0) != nullptr, stage <= 1 || world == 1);
      });
    }
  }
}

TEST(Gradients, ASecondGradientOfAMicroStepIsAdded) {
  const std::unique_ptr<Group> group = make_single_group();
  for (int stage = 0; stage <= 3; ++stage) {
    ModelParts parts({unit_spec(0, {3})}, stage, *group);
    Gradients gradients = parts.gradients();
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({1, 2, 3}));
    gradients.deposit(0, 0, tensor_of({10, 20, 30}));
    gradients.reduce(0);
    gradients.wait();
    EXPECT_EQ(shard_of(parts, gradients)[2], 33);
  }
}

TEST(Gradients, AParameterWithoutOneCountsAsZeroThoughItsMemoryWasUsedBefore) {
  const std::unique_ptr<Group> group = make_single_group();
  for (int stage = 0; stage <= 3; ++stage) {
    ModelParts parts({unit_spec(0, {3, 2})}, stage, *group);
    Gradients gradients = parts.gradients();
    for (int step = 0; step < 4; ++step) {
      gradients.begin_micro_step(0);
      if (step % 2 == 0) gradients.deposit(0, 0, tensor_of({1, 2, 3}));
      gradients.deposit(0, 1, tensor_of({7, 8}));
      gradients.reduce(0);
      gradients.wait();
      const std::vector<float> shard = shard_of(parts, gradients);
      EXPECT_EQ(shard[1], step % 2 == 0 ? 2 : 0) << "stage " << stage << " step " << step;
      EXPECT_EQ(shard[kAlignNumel], 7);
      EXPECT_EQ(shard[kAlignNumel + 2], 0);
    }
  }
}

TEST(Gradients, AccumulateOverMicroStepsInFp32AndAreRoundedOnce) {
  const std::vector<float> micro_steps = {1, 1.0f / 256, 1.0f / 256};  // each too small to move 1 in bf16
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool reproducible : {false, true}) {
      const GradientOptions options = {.reproducible = reproducible};
      EXPECT_EQ(after_micro_steps(stage, micro_steps, options, DType::bf16), 1 + 1.0f / 128) << "stage " << stage;
    }
  }
}

TEST(Gradients, AreRoundedToTheDtypeThatWasAskedFor) {
  const std::vector<float> micro_steps = {1, 1.0f / 512, 1.0f / 512};  // their sum is no bf16 number
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(after_micro_steps(stage, micro_steps, {.accumulation_dtype = DType::bf16}, DType::bf16), 1);
    EXPECT_EQ(after_micro_steps(stage, micro_steps, {.accumulation_dtype = DType::f32}, DType::bf16), 1 + 1.0f / 256);
    EXPECT_EQ(after_micro_steps(stage, {1, 1.0f / 512}, {.accumulation_dtype = DType::f16}, DType::f32),
              1 + 1.0f / 512);
  }
}

TEST(Gradients, TravelInTheCommunicationDtype) {
  const float fine = 1 + 1.0f / 1024;  // an fp16 number, and no bf16 one
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(after_micro_steps(stage, {fine}, {}, DType::f32), fine);
    EXPECT_EQ(after_micro_steps(stage, {fine}, {.communication_dtype = DType::bf16}, DType::f32), 1);
    EXPECT_EQ(after_micro_steps(stage, {fine}, {}, DType::bf16), 1);
    EXPECT_EQ(after_micro_steps(stage, {fine}, {.communication_dtype = DType::f32}, DType::bf16), fine);
    EXPECT_EQ(after_micro_steps(stage, {fine}, {.communication_dtype = DType::f16}, DType::bf16), fine);
  }
}

TEST(Gradients, AreMultipliedAfterTheSum) {
  for (const auto& [factor, expected] : std::vector<std::pair<float, float>>{{1.0f, 6.0f}, {0.25f, 1.5f}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      testing::run_ranks(3, [&, factor = factor, expected = expected](Group& group) {
        ModelParts parts({unit_spec(0, {1})}, stage, group);
        ReduceOptions reduce;
        reduce.factor = factor;
        Gradients gradients = parts.gradients({}, reduce);
        gradients.begin_micro_step(0);
        gradients.deposit(0, 0, tensor_of({static_cast<float>(group.rank() + 1)}));
        gradients.reduce(0);
        gradients.wait();
        if (group.rank() != 0) return;  // the element lies in rank 0's shard
        EXPECT_EQ(shard_of(parts, gradients)[0], expected);
      });
    }
  }
}

TEST(Gradients, ASumThatTheWireCouldNotHoldIsDividedInFp32) {
  testing::run_ranks(2, [](Group& group) {
    ModelParts parts({unit_spec(0, {1}, DType::f16)}, 2, group);
    Gradients gradients = parts.gradients({});
    gradients.set_factor(0.5f);
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({60000}));
    gradients.reduce(0);
    gradients.wait();
    if (group.rank() != 0) return;  // the element lies in rank 0's shard
    EXPECT_EQ(shard_of(parts, gradients)[0], 60000);
  });
}

// Leaves of small integers and of values that lose bits, folded at every number of ranks: see [Note: the fold].
TEST(Gradients, TheMeanHasTheSameBitsAtEveryNumberOfRanks) {
  constexpr int kLeaves = 12;
  const auto leaf = [](int64_t number, int64_t i) {
    return std::ldexp(static_cast<float>((number * 7919 + i * 104729) % 1009 - 504), static_cast<int>(number % 5) - 9);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t group : {0, 1, 2, 3, 5}) {
      for (int stage = 0; stage <= 3; ++stage) {
        std::vector<float> expected;
        for (const int world : {1, 2, 3, 4, 6, 12}) {
          std::vector<float> whole(333);
          testing::run_ranks(world, [&](Group& ranks) {
            ModelParts parts({unit_spec(0, {333}, dtype)}, stage, ranks);
            GradientOptions options;
            options.accumulation_steps = kLeaves / world;
            options.reproducible = true;
            options.fold_group = group;
            options.data_ranks = world;
            ReduceOptions reduce;
            reduce.factor = 1.0f / kLeaves;
            Gradients gradients = parts.gradients(options, reduce);
            for (int step = 0; step < 2; ++step) {
              for (int64_t micro_step = 0; micro_step < options.accumulation_steps; ++micro_step) {
                gradients.begin_micro_step(micro_step);
                gradients.set_last(micro_step + 1 == options.accumulation_steps);
                const int64_t number = micro_step * world + ranks.rank();
                std::vector<float> values;
                for (int64_t i = 0; i < 333; ++i) values.push_back(leaf(number, i + step));
                gradients.deposit(0, 0, tensor_of(values));
                if (number % 2 == 0) gradients.deposit(0, 0, tensor_of(values));  // used twice
                gradients.reduce(0);
                gradients.wait();
              }
            }
            const std::vector<float> shard = shard_of(parts, gradients);
            const auto begin = static_cast<size_t>(ranks.rank()) * shard.size();
            for (size_t i = 0; i < shard.size() && begin + i < whole.size(); ++i) whole[begin + i] = shard[i];
          });
          if (expected.empty()) expected = whole;
          EXPECT_EQ(std::memcmp(whole.data(), expected.data(), whole.size() * sizeof(float)), 0)
              << "stage " << stage << ", " << world << " ranks, groups of " << group << ", " << name_of(dtype);
        }
      }
    }
  }
}

TEST(Gradients, MoreMicroStepsGoOnFromAMean) {
  for (int stage = 0; stage <= 3; ++stage) {
    testing::run_ranks(2, [&](Group& group) {
      ModelParts parts({unit_spec(0, {1})}, stage, group);
      GradientOptions options;
      options.data_ranks = 2;
      Gradients gradients = parts.gradients(options, mean_over(2));
      for (int micro_step = 0; micro_step < 3; ++micro_step) {
        if (micro_step == 1) gradients.accumulate_more();
        gradients.begin_micro_step(micro_step);
        gradients.set_last(true);
        gradients.deposit(0, 0, tensor_of({static_cast<float>(10 * micro_step + group.rank())}));
        gradients.reduce(0);
        gradients.wait();
      }
      if (group.rank() == 0) {
        EXPECT_EQ(shard_of(parts, gradients)[0], 0.5f + 10.5f + 20.5f);
      }
    });
  }
}

// Micro-steps after a mean that do not end the step, in groups that they do not fill.
TEST(Gradients, AMeanIsKeptUntilAGroupIsAddedToIt) {
  for (const int64_t fold_group : {0, 2, 3, 4, 6}) {
    for (const std::vector<bool>& ends :
         {std::vector<bool>{true, false, true}, {true, false, false, true}, {false, true, false, false, false, true}}) {
      for (int stage = 0; stage <= 3; ++stage) {
        testing::run_ranks(2, [&](Group& group) {
          ModelParts parts({unit_spec(0, {1})}, stage, group);
          GradientOptions options;
          options.data_ranks = 2;
          options.fold_group = fold_group;
          options.accumulation_steps = 2;
          Gradients gradients = parts.gradients(options, mean_over(2));
          float expected = 0;
          bool more = false;
          for (size_t index = 0; index < ends.size(); ++index) {
            if (index > 0 && ends[index - 1] && !more) {
              gradients.accumulate_more();
              more = true;
            }
            gradients.begin_micro_step(static_cast<int64_t>(index));
            gradients.set_last(ends[index]);
            const auto value = static_cast<float>(10 * index);
            gradients.deposit(0, 0, tensor_of({value + static_cast<float>(group.rank())}));
            gradients.reduce(0);
            gradients.wait();
            expected += value + 0.5f;
          }
          if (group.rank() == 0) {
            EXPECT_EQ(shard_of(parts, gradients)[0], expected)
                << "groups of " << fold_group << ", stage " << stage << ", " << ends.size() << " micro-steps";
          }
        });
      }
    }
  }
}

TEST(Gradients, SlotsGrowOnlyWhileMoreUnitsCollectThanThereAre) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {5}), unit_spec(1, {300}), unit_spec(2, {1})}, 2, *group);
  // In a world of one only gradients that change their dtype on the way pass through slots.
  Gradients gradients = parts.gradients({.accumulation_dtype = DType::bf16});
  const auto slots_nbytes = [&] { return parts.ledger->line(MemoryKind::reduce_slots).nbytes; };
  const size_t slot_nbytes = 384 * sizeof(float);  // the largest unit
  EXPECT_EQ(slots_nbytes(), 2 * slot_nbytes);
  for (int step = 0; step < 3; ++step) {  // one after the other: two are enough
    gradients.begin_micro_step(0);
    for (const int unit : {2, 1, 0}) {
      gradients.deposit(unit, 0,
                        at::full({parts.specs[static_cast<size_t>(unit)].params[0].numel()}, unit + step, at::kFloat));
      gradients.reduce(unit);
    }
    gradients.wait();
  }
  EXPECT_EQ(slots_nbytes(), 2 * slot_nbytes);

  gradients.begin_micro_step(0);  // all collect at once
  for (const int unit : {0, 1, 2}) {
    gradients.deposit(unit, 0,
                      at::full({parts.specs[static_cast<size_t>(unit)].params[0].numel()}, unit + 40, at::kFloat));
  }
  for (const int unit : {0, 1, 2}) gradients.reduce(unit);
  gradients.wait();
  EXPECT_EQ(slots_nbytes(), 3 * slot_nbytes);
  for (const int unit : {0, 1, 2}) {
    float first = 0;
    kernels::convert(gradients.shard(unit, 0), DType::bf16, &first, DType::f32, 1);
    EXPECT_EQ(first, static_cast<float>(unit + 40));
  }
}

TEST(Gradients, SquareSumsCoverTrainableFlatsInOrder) {
  const std::unique_ptr<Group> group = make_single_group();
  UnitSpec mixed = unit_spec(0, {2, 2, 2});
  mixed.params[0].trainable = false;
  mixed.params[2].dtype = DType::bf16;
  ModelParts parts({mixed, unit_spec(1, {1})}, 3, *group);
  Gradients gradients = parts.gradients();
  gradients.begin_micro_step(0);
  gradients.deposit(0, 1, tensor_of({1, 2}));
  gradients.deposit(0, 2, tensor_of({3, 4}));
  gradients.deposit(1, 0, tensor_of({5}));
  for (const int unit : {1, 0}) gradients.reduce(unit);
  gradients.wait();
  const double* sums = gradients.sum_shard_squares();
  EXPECT_EQ(std::vector<double>(sums, sums + 3), (std::vector<double>{5, 25, 25}));
}

TEST(Gradients, WhatIsWrittenIsReadAgainAndCountsInTheSquares) {
  for (int world = 1; world <= 3; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        testing::run_ranks(world, [&](Group& group) {
          ModelParts parts({unit_spec(0, {333, 5}, dtype)}, stage, group);
          Gradients gradients = parts.gradients({}, mean_over(world));
          for (int step = 0; step < 2; ++step) {  // the second one finds nothing of the first
            gradients.begin_micro_step(0);
            gradients.deposit(0, 0, tensor_of(std::vector<float>(333, 1)));
            gradients.deposit(0, 1, tensor_of(std::vector<float>(5, 1)));
            gradients.reduce(0);
            gradients.wait();
            const FlatLayout& flat = parts.layout.units[0].flats[0];
            const int64_t first = group.rank() * flat.shard_numel;
            const int64_t mine = std::clamp<int64_t>(333 - first, 0, flat.shard_numel);
            double squares = 0;
            for (const float value : shard_of(parts, gradients)) squares += static_cast<double>(value) * value;
            if (step == 0 && mine > 2) {
              const std::vector<float> values = {-3, 4};
              gradients.write(0, 0, first + 1, 2, values.data());
              std::vector<float> found(2);
              gradients.read(0, 0, first + 1, 2, found.data());
              EXPECT_EQ(found, values);
              squares += 9 + 16 - 1 - 1;
            }
            EXPECT_EQ(squares_of(parts, gradients), squares) << "world " << world << " stage " << stage;
          }
        });
      }
    }
  }
}

// Two steps of three units, of which the first gets its gradients in two turns, and the last none in the end.
std::string bits_after_two_steps(Group& group, int stage, DType dtype, const GradientOptions& options, bool in_host) {
  ModelParts parts({unit_spec(0, {333, 70}, dtype), unit_spec(1, {150}, dtype), unit_spec(2, {90}, dtype)}, stage,
                   group);
  Gradients gradients = parts.gradients(options, mean_over(group.size()), in_host ? parts.all_flats() : HostFlats{});
  std::string bits;
  for (int step = 0; step < 2; ++step) {
    for (int64_t micro = 0; micro < options.accumulation_steps; ++micro) {
      gradients.begin_micro_step(micro);
      gradients.set_last(micro + 1 == options.accumulation_steps);
      const auto values = [&](int64_t numel) {
        std::vector<float> grad = grad_of(group.rank() + step, numel);
        for (float& value : grad) value = value / 7 + static_cast<float>(micro);
        return tensor_of(grad);
      };
      gradients.deposit(0, 0, values(333));
      gradients.deposit(1, 0, values(150));
      if (step + micro == 0) gradients.deposit(2, 0, values(90));
      for (const int unit : {2, 1}) gradients.reduce(unit);
      gradients.deposit(0, 1, values(70));
      gradients.deposit(0, 0, values(333));
      gradients.reduce(0);
    }
    gradients.wait();
    for (int unit = 0; unit < 3; ++unit) {
      EXPECT_EQ(gradients.is_in_host(unit, 0), in_host);
      for (const float value : shard_of(parts, gradients, unit)) bits.append(reinterpret_cast<const char*>(&value), 4);
    }
    const auto places = static_cast<size_t>(norm_tops(parts.layout).places);
    bits.append(reinterpret_cast<const char*>(gradients.sum_shard_squares()), places * sizeof(double));
  }
  EXPECT_EQ(parts.ledger->line(MemoryKind::gradients).nbytes > 0, !in_host);
  EXPECT_EQ(parts.ledger->line(MemoryKind::host_gradients).nbytes > 0, in_host);
  return bits;
}

TEST(Gradients, ThoseThatWaitInHostMemoryHaveTheSameBits) {
  for (const int world : {1, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      testing::run_ranks(world, [&](Group& group) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          for (const int64_t accumulation : {1, 4}) {
            for (const bool reproducible : {false, true}) {
              const GradientOptions options{.accumulation_steps = accumulation, .reproducible = reproducible};
              EXPECT_EQ(bits_after_two_steps(group, stage, dtype, options, true),
                        bits_after_two_steps(group, stage, dtype, options, false))
                  << fmt::format("world {} stage {} {} accumulation {} reproducible {}", world, stage, name_of(dtype),
                                 accumulation, reproducible);
            }
          }
        }
      });
    }
  }
}

TEST(Gradients, ThoseOfSomeFlatsMayWaitInHostMemory) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {3}), unit_spec(1, {5})}, 2, *group);
  Gradients gradients = parts.gradients({}, {}, {{false}, {true}});
  gradients.begin_micro_step(0);
  gradients.deposit(0, 0, tensor_of({1, 2, 3}));
  gradients.deposit(1, 0, tensor_of({1, 2, 3, 4, 5}));
  for (const int unit : {1, 0}) gradients.reduce(unit);
  gradients.wait();
  EXPECT_EQ(shard_of(parts, gradients, 0)[2], 3);
  EXPECT_EQ(shard_of(parts, gradients, 1)[4], 5);
  const std::vector<float> other = {6, 7};
  gradients.write(1, 0, 1, 2, other.data());
  EXPECT_EQ(shard_of(parts, gradients, 1)[2], 7);
  std::vector<float> read(2);
  gradients.read(1, 0, 2, 2, read.data());
  EXPECT_EQ(read, (std::vector<float>{7, 4}));
  EXPECT_EQ(gradients.sum_shard_squares()[1], 1 + 36 + 49 + 16 + 25);
}

TEST(Gradients, RefuseWhatIsSparseMisshapenOrOfAForeignDtype) {
  const std::unique_ptr<Group> group = make_single_group();
  ModelParts parts({unit_spec(0, {4})}, 1, *group);
  Gradients gradients = parts.gradients();
  gradients.begin_micro_step(0);
  EXPECT_THAT(message_of([&] { gradients.deposit(0, 0, at::ones({4}).to_sparse()); }),
              HasSubstr("[gradient in unit u0] a parameter's gradient is sparse"));
  EXPECT_THAT(message_of([&] { gradients.deposit(0, 0, at::ones({5})); }), HasSubstr("another shape"));
  EXPECT_THAT(message_of([&] { gradients.deposit(0, 0, at::ones({4}, at::kDouble)); }), HasSubstr("Double"));
}

TEST(Gradients, AGradientThatComesAfterTheReductionIsAnErrorAndNotLost) {
  const std::unique_ptr<Group> group = make_single_group();
  for (int stage = 0; stage <= 3; ++stage) {
    ModelParts parts({unit_spec(0, {3})}, stage, *group);
    Gradients gradients = parts.gradients({});
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({1, 2, 3}));
    gradients.reduce(0);
    EXPECT_THAT(message_of([&] {
                  gradients.deposit(0, 0, tensor_of({1, 2, 3}));
                }),
                HasSubstr("[gradient in unit u0] it came when the unit's gradients were reduced already"));
    EXPECT_EQ(gradients.target(0, 0, DType::f32), nullptr);
    gradients.wait();
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({1, 2, 3}));  // of the next micro-step
  }
}

// The first is reduced as the only one of its step; then more come.
TEST(Gradients, MoreMicroStepsThanPlannedAddUp) {
  for (int stage = 0; stage <= 3; ++stage) {
    testing::run_ranks(2, [&](Group& group) {
      ModelParts parts({unit_spec(0, {333})}, stage, group);
      Gradients gradients = parts.gradients({}, mean_over(2));
      for (int micro_step = 0; micro_step < 3; ++micro_step) {
        if (micro_step == 1) gradients.accumulate_more();
        gradients.begin_micro_step(micro_step);
        gradients.set_last(true);
        gradients.deposit(0, 0, tensor_of(std::vector<float>(333, static_cast<float>(group.rank() + micro_step))));
        gradients.reduce(0);
        gradients.wait();
      }
      EXPECT_EQ(shard_of(parts, gradients)[0], 4.5f) << "stage " << stage;  // 0.5 + 1.5 + 2.5
    });
  }
}

}  // namespace shoal
