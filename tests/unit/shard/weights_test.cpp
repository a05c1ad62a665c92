#include "shard/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/weight_shards.h"
#include "temp_folder.h"
#include "unit/comm/rank_threads.h"
#include "unit/optim/far_queue.h"
#include "unit/shard/model_parts.h"

namespace shoal {

using testing::floats_at;
using ::testing::HasSubstr;
using testing::message_of;
using testing::ModelParts;
using testing::unit_spec;

namespace {

// The value of element i of a flat in these tests, the same on every rank.
float value_at(int unit, int64_t i) { return static_cast<float>(1000 * (unit + 1) + i); }

std::vector<float> values_of(int unit, int64_t begin, int64_t numel) {
  std::vector<float> values;
  for (int64_t i = begin; i < begin + numel; ++i) values.push_back(value_at(unit, i));
  return values;
}

// Tensors for every parameter of the layout's specs, handed to the weights; every rank's shard filled.
std::vector<std::vector<at::Tensor>> fill(ModelParts& parts, Weights& weights) {
  std::vector<std::vector<at::Tensor>> tensors;
  for (int unit = 0; unit < static_cast<int>(parts.specs.size()); ++unit) {
    std::vector<ParamSlot> slots;
    tensors.emplace_back();
    for (const ParamSpec& param : parts.specs[static_cast<size_t>(unit)].params) {
      tensors.back().push_back(at::empty(param.shape, at::kFloat));
      slots.emplace_back(tensors.back().back(), param.name, param.dtype);
    }
    weights.take_params(unit, std::move(slots));
    const std::vector<FlatLayout>& flats = parts.layout.units[static_cast<size_t>(unit)].flats;
    for (int flat = 0; flat < static_cast<int>(flats.size()); ++flat) {
      const int64_t shard_numel = flats[static_cast<size_t>(flat)].shard_numel;
      const std::vector<float> mine = values_of(unit, parts.group.rank() * shard_numel, shard_numel);
      if (weights.is_sharded(unit, flat)) weights.change(unit);
      if (!mine.empty()) std::memcpy(weights.shard(unit, flat), mine.data(), mine.size() * sizeof(float));
    }
  }
  return tensors;
}

}  // namespace

TEST(Weights, GatherBringsEveryRanksShardToTheParametersAndReleaseTakesItAway) {
  for (int world = 1; world <= 4; ++world) {
    testing::run_ranks(world, [&](Group& group) {
      ModelParts parts({unit_spec(0, {5, 0, 1, 131})}, 3, group);
      Weights weights = parts.weights();
      const auto tensors = fill(parts, weights)[0];
      const FlatLayout& flat = parts.layout.units[0].flats.at(0);
      EXPECT_TRUE(weights.is_sharded(0, 0));
      EXPECT_EQ(weights.whole(0, 0), nullptr);
      EXPECT_EQ(parts.ledger->line(MemoryKind::weights).nbytes, static_cast<size_t>(flat.shard_numel) * 4);
      for (int round = 0; round < 2; ++round) {
        weights.gather(0);
        weights.finish_gather(0);
        for (const Piece& piece : flat.pieces) {
          const at::Tensor& tensor = tensors[static_cast<size_t>(piece.param)];
          EXPECT_EQ(floats_at(tensor.const_data_ptr(), piece.numel), values_of(0, piece.offset, piece.numel));
        }
        weights.release(0);
        EXPECT_THAT(message_of([&] { at::sum(tensors[0]); }), HasSubstr("[parameter p0] is released"));
      }
    });
  }
}

// In a world of one too: what the host has must come to the device.
TEST(Weights, ShardsOfTheHostComeToADeviceWhenTheyAreGathered) {
  for (int world = 1; world <= 3; ++world) {
    testing::run_ranks(world, [&](Group& group) {
      ModelParts parts({unit_spec(0, {5, 131}), unit_spec(1, {64})}, 3, group);
      testing::FarQueue far;
      Weights weights(parts.layout, {.stage = 3, .tier = Tier::host}, nullptr, group, far, far, parts.ledger);
      const auto tensors = fill(parts, weights);
      const FlatLayout& flat = parts.layout.units[0].flats.at(0);
      EXPECT_TRUE(weights.is_off_device(0));
      EXPECT_EQ(parts.ledger->line(MemoryKind::weights).nbytes, 0u);
      EXPECT_GT(parts.ledger->line(MemoryKind::host_weights).nbytes, 0u);
      weights.gather(0);
      weights.finish_gather(0);
      for (const Piece& piece : flat.pieces) {
        const void* data = tensors[0][static_cast<size_t>(piece.param)].const_data_ptr();
        EXPECT_EQ(floats_at(data, piece.numel), values_of(0, piece.offset, piece.numel));
        EXPECT_FALSE(data >= weights.shard(0, 0) && data < weights.shard(0, 0) + flat.shard_numel * 4);
      }
      EXPECT_EQ(parts.ledger->line(MemoryKind::gather_arena).nbytes, gathered_nbytes(parts.layout.units[0], 3, true));
      weights.release(0);
    });
  }
}

// Blocks are made by the queue that computes, in memory that a GPU works on wherever shards are, and become elements on
// the queue of the collectives.
TEST(Weights, BlocksAreMadeWhereTheQueueWorks) {
  for (int world = 2; world <= 3; ++world) {
    for (const bool frozen_alone : {false, true}) {
      testing::run_ranks(world, [&](Group& group) {
        ModelParts parts({unit_spec(0, {700, 131})}, 3, group);
        ModelParts frozen({unit_spec(0, {700, 131})}, 3, group);
        for (ParamSpec& param : frozen.specs[0].params) param.trainable = false;
        frozen.layout = lay_out(frozen.specs, {.mesh = world, .persistence_threshold = 0});
        ModelParts& used = frozen_alone ? frozen : parts;
        std::vector<std::vector<float>> found;
        for (const Tier tier : {Tier::device, Tier::host}) {
          testing::FarQueue far, carried;
          const ShardOptions options{.stage = 3, .tier = tier, .quantized = !frozen_alone, .quantized_frozen = true};
          Weights weights(used.layout, options, nullptr, group, far, carried, used.ledger);
          const auto tensors = fill(used, weights);
          EXPECT_EQ(weights.is_off_device(0), tier == Tier::host);
          weights.gather(0);
          weights.finish_gather(0);
          std::vector<float>& values = found.emplace_back();
          for (const at::Tensor& tensor : tensors[0]) {
            const std::vector<float> of_param = floats_at(tensor.const_data_ptr(), tensor.numel());
            values.insert(values.end(), of_param.begin(), of_param.end());
          }
          EXPECT_EQ(far.quantized.load(), 1);
          EXPECT_EQ(far.dequantized.load(), 0);
          EXPECT_EQ(carried.dequantized.load(), 1);
          EXPECT_EQ(carried.quantized.load(), 0);
          EXPECT_EQ(used.ledger->line(MemoryKind::second_weights).nbytes, second_nbytes(used.layout, options));
          weights.release(0);
        }
        EXPECT_EQ(found[0], found[1]);
        const std::vector<float> exact = values_of(0, 0, 700);
        EXPECT_FALSE(std::equal(exact.begin(), exact.end(), found[0].begin()));
        for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(found[0][i], exact[i], exact[i] / 127) << i;
      });
    }
  }
}

// Gathers run ahead of their use, with fewer buffers than gathers.
TEST(Weights, ShardsOfTheDiskComeWhenTheyAreGathered) {
  const testing::TempFolder folder;
  for (int world = 1; world <= 3; ++world) {
    for (const int buffers : {1, 2, 3}) {
      testing::run_ranks(world, [&](Group& group) {
        ModelParts parts({unit_spec(0, {5, 131}), unit_spec(1, {64}), unit_spec(2, {3000})}, 3, group);
        Config config;
        config.zero.stage = 3;
        config.zero.offload_param = {
            .tier = Tier::disk, .nvme_path = folder.path(), .buffer_count = buffers, .max_in_cpu = 0};
        Weights weights(parts.layout, shard_options(config), make_shard_file(parts.layout, config, parts.ledger), group,
                        *parts.queue, *parts.queue, parts.ledger);
        const auto tensors = fill(parts, weights);
        EXPECT_EQ(parts.ledger->line(MemoryKind::weights).nbytes, 0u);
        EXPECT_FALSE(weights.is_off_device(0));
        for (int round = 0; round < 3; ++round) {
          weights.expect({0, 1, 2});
          for (int unit = 0; unit < 3; ++unit) weights.gather(unit);
          for (int unit = 0; unit < 3; ++unit) {
            weights.finish_gather(unit);
            for (const Piece& piece : parts.layout.units[static_cast<size_t>(unit)].flats.at(0).pieces) {
              const at::Tensor& tensor = tensors[static_cast<size_t>(unit)][static_cast<size_t>(piece.param)];
              EXPECT_EQ(floats_at(tensor.const_data_ptr(), piece.numel), values_of(unit, piece.offset, piece.numel));
            }
            weights.release(unit);
          }
        }
        EXPECT_EQ(weights.file()->counters().written_nbytes > 0, buffers < 3);
        weights.leave();
      });
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Weights, ReleaseWaitsForAGatherThatNobodyFinished) {
  testing::run_ranks(3, [](Group& group) {
    ModelParts parts({unit_spec(0, {700}), unit_spec(1, {3})}, 3, group);
    Weights weights = parts.weights();
    fill(parts, weights);
    weights.gather(0);
    weights.release(0);
    weights.release(1);  // nothing gathered: nothing to do
    weights.gather(0);
    weights.gather(1);
    EXPECT_EQ(parts.ledger->line(MemoryKind::gather_arena).nbytes, 2 * kArenaGranule);
    weights.release(1);
    weights.release(0);
  });
}

TEST(Weights, NamesWhatIsWrittenWhileItIsGathered) {
  for (int world = 1; world <= 2; ++world) {
    testing::run_ranks(world, [&](Group& group) {
      ModelParts parts({unit_spec(0, {5, 3})}, 3, group);
      Weights weights = parts.weights();
      const auto tensors = fill(parts, weights)[0];
      for (const bool writes : {false, true, false}) {
        weights.gather(0);
        weights.finish_gather(0);
        EXPECT_EQ(weights.written_in_vain(0), nullptr);
        if (writes) tensors[1].fill_(1);
        const std::string* named = weights.written_in_vain(0);
        if (writes && group.size() > 1) {  // what is alone writes its shard
          ASSERT_NE(named, nullptr);
          EXPECT_EQ(*named, "p1");
        } else {
          EXPECT_EQ(named, nullptr);
        }
        weights.release(0);
        EXPECT_EQ(weights.written_in_vain(0), nullptr);
      }
    });
  }
}

TEST(Weights, FindsWritesWithoutATraceFromTheBeginningAndThoseThatBeginLate) {
  testing::run_ranks(2, [&](Group& group) {
    ModelParts parts({unit_spec(0, {5, 3})}, 3, group);
    Weights weights = parts.weights();
    const auto tensors = fill(parts, weights)[0];
    int gathers = 0;
    const auto finds = [&](bool writes) {
      weights.gather(0);
      weights.finish_gather(0);
      if (writes) tensors[1].data_ptr<float>()[0] += 1;
      const bool found = weights.written_in_vain(0) != nullptr;
      weights.release(0);
      ++gathers;
      return found;
    };
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(finds(false));  // an evaluation before anything is trained
    weights.begin_pass(/*trains=*/true);
    EXPECT_TRUE(finds(true));
    EXPECT_TRUE(finds(true));
    for (const bool odd : {false, true}) {  // in forwards alone, and in backwards alone
      int until = 0;
      while (until < 100 && !finds(until % 2 == static_cast<int>(odd))) ++until;
      EXPECT_LT(until, 12) << odd;
    }
  });
}

TEST(Weights, BelowStageThreeParametersAreWholeAndReadable) {
  for (const int stage : {0, 1, 2}) {
    testing::run_ranks(2, [&](Group& group) {
      ModelParts parts({unit_spec(0, {300})}, stage, group);
      Weights weights = parts.weights();
      const at::Tensor tensor = fill(parts, weights)[0][0];
      const FlatLayout& flat = parts.layout.units[0].flats.at(0);
      EXPECT_FALSE(weights.is_sharded(0, 0));
      EXPECT_EQ(tensor.const_data_ptr(), weights.whole(0, 0));
      EXPECT_EQ(weights.shard(0, 0), weights.whole(0, 0) + group.rank() * flat.shard_numel * 4);
      EXPECT_EQ(parts.ledger->line(MemoryKind::weights).nbytes, static_cast<size_t>(flat.numel) * 4);
      EXPECT_EQ(parts.ledger->line(MemoryKind::gather_arena).nbytes, 0u);
    });
  }
}

TEST(Weights, PublishBringsEachRanksUpdateToAllWhereStatesAreSharded) {
  for (const int stage : {1, 2, 3}) {
    testing::run_ranks(3, [&](Group& group) {
      // At stage 3 the small parameter stays whole, and is published too.
      ModelParts parts({unit_spec(0, {300})}, stage, group, /*persistence_threshold=*/stage == 3 ? 300 : 0);
      Weights weights = parts.weights();
      const at::Tensor tensor = fill(parts, weights)[0][0];
      weights.publish(0);
      weights.finish_publish();
      EXPECT_EQ(floats_at(tensor.const_data_ptr(), 300), values_of(0, 0, 300)) << "stage " << stage;
    });
  }
}

TEST(Weights, GatherIntoFillsTheCallersMemory) {
  testing::run_ranks(2, [](Group& group) {
    ModelParts parts({unit_spec(0, {300})}, 3, group);
    Weights weights = parts.weights();
    fill(parts, weights);
    std::vector<float> whole(static_cast<size_t>(parts.layout.units[0].flats[0].numel));
    weights.gather_into(0, 0, reinterpret_cast<std::byte*>(whole.data()));
    EXPECT_EQ(whole, values_of(0, 0, static_cast<int64_t>(whole.size())));
  });
}

TEST(Weights, LeaveRecordsShardsOfReleasedParametersAndKeepsWholeOnes) {
  testing::run_ranks(2, [](Group& group) {
    std::vector<std::vector<at::Tensor>> tensors;
    std::weak_ptr<Ledger> ledger;
    {
      ModelParts parts({unit_spec(0, {300, 3})}, 3, group, /*persistence_threshold=*/3);
      ledger = parts.ledger;
      Weights weights = parts.weights();
      tensors = fill(parts, weights);
      weights.gather(0);
      weights.finish_gather(0);  // still gathered when the engine goes
      weights.leave();
    }
    const ShardRecord* record = find_shard_record(tensors[0][0]);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->world(), 2);
    EXPECT_EQ(record->piece.numel, 300);
    EXPECT_EQ(floats_at(record->fetch(), 2), values_of(0, group.rank() * record->flat.shard_numel, 2));
    EXPECT_THAT(message_of([&] { at::sum(tensors[0][0]); }), HasSubstr("is released"));
    EXPECT_EQ(find_shard_record(tensors[0][1]), nullptr);
    EXPECT_EQ(floats_at(tensors[0][1].const_data_ptr(), 3),
              group.rank() == 0 ? values_of(0, 0, 3) : std::vector<float>(3));
    EXPECT_FALSE(ledger.expired());
    tensors.clear();
    EXPECT_TRUE(ledger.expired());  // the slab went with the last parameter
  });
}

}  // namespace shoal
