#include "optim/updater.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/convert.h"
#include "plan/from_config.h"
#include "temp_folder.h"
#include "unit/comm/rank_threads.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/late_copy_streams.h"
#include "unit/shard/model_parts.h"

namespace shoal {

using testing::ModelParts;
using testing::tensor_of;
using testing::unit_spec;

namespace {

constexpr int64_t kNumel = 301;  // ends in the middle of a shard and of a vector

float initial_at(int64_t i) { return std::sin(static_cast<float>(i) + 0.3f) * 1.7f; }
float grad_at(int step, int64_t i) { return std::cos(static_cast<float>(i * 7 + step * 13)) * 0.37f; }

OptimizerConfig optimizer_of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.weight_decay = 0.01;
  if (optimizer_row(kind).takes("momentum")) config.momentum = 0.9;
  if (optimizer_row(kind).takes("nesterov")) config.nesterov = true;
  return config;
}

StepNumbers numbers_of(int step, double lr, double weight_decay = 0.01) {
  StepNumbers numbers;
  numbers.step = step;
  numbers.grad_scale = 0.5;
  numbers.lrs = {lr, lr * 10};
  numbers.weight_decays = {weight_decay, 0};
  return numbers;
}

// In host memory, which the queues here reach.
StepConstants constants_of(const OptimizerConfig& config, const StepNumbers& numbers) {
  StepConstants constants;
  const auto steps = std::make_shared<const GroupSteps>(group_steps(config, numbers));
  constants.placed = in_host_memory(*steps);
  constants.decided = [steps] { return std::optional(*steps); };
  return constants;
}

Config config_with(const OptimizerConfig& optimizer, int stage) {
  Config config;
  config.optimizer = optimizer;
  config.zero.stage = stage;
  return config;
}

// One parameter trained on one rank of a group.
struct Training {
  Training(Group& group, int stage, DType dtype, const OptimizerConfig& config, int param_group = 0)
      : optimizer(config),
        parts({spec(dtype, param_group)}, stage, group),
        weights(parts.weights()),
        gradients(parts.gradients({.communication_dtype = DType::f32})),
        states(parts.layout, config_with(config, stage), group.rank(), *parts.queue, parts.ledger),
        updater(parts.layout, parts.specs, config_with(config, stage), states, *parts.queue, parts.ledger) {
    const FlatLayout& flat = parts.layout.units[0].flats[0];
    std::vector<float> values(static_cast<size_t>(flat.numel));
    for (int64_t i = 0; i < kNumel; ++i) values[static_cast<size_t>(i)] = initial_at(i);
    states.set_values(0, 0, {0, flat.numel}, values.data(), weights);
    updater.meet_over(group);
  }

  static UnitSpec spec(DType dtype, int param_group) {
    UnitSpec unit = unit_spec(0, {kNumel}, dtype);
    unit.params[0].group = param_group;
    return unit;
  }

  void step(const StepNumbers& numbers) {
    std::vector<float> grad;
    for (int64_t i = 0; i < kNumel; ++i) grad.push_back(grad_at(static_cast<int>(numbers.step), i));
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of(grad));
    gradients.reduce(0);
    gradients.wait();
    const StepConstants constants = constants_of(optimizer, numbers);
    updater.begin_step(constants, weights, gradients);
    updater.update(0, constants, weights, gradients);
    weights.publish(0);
    weights.finish_publish();
  }

  // The whole weight of every rank, as stored.
  std::string weight_bytes() {
    const FlatLayout& flat = parts.layout.units[0].flats[0];
    std::string bytes(static_cast<size_t>(flat.numel) * nbytes_of(flat.dtype), '\0');
    if (weights.is_sharded(0, 0)) {
      weights.gather_into(0, 0, reinterpret_cast<std::byte*>(bytes.data()));
    } else {
      std::memcpy(bytes.data(), weights.whole(0, 0), bytes.size());
    }
    return bytes.substr(0, static_cast<size_t>(kNumel) * nbytes_of(flat.dtype));
  }

  OptimizerConfig optimizer;
  ModelParts parts;
  Weights weights;
  Gradients gradients;
  KeptStates states;
  Updater updater;
};

template <class Element>
Element element_at(const std::string& bytes, int64_t i) {
  Element element;
  std::memcpy(&element, bytes.data() + static_cast<size_t>(i) * sizeof(Element), sizeof(Element));
  return element;
}

// The bf16 weights that fp32 masters have.
std::string high_halves(const std::string& fp32_bytes) {
  std::string halves;
  for (int64_t i = 0; i < kNumel; ++i) {
    const uint16_t weight = kernels::split_weight(element_at<float>(fp32_bytes, i));
    halves.append(reinterpret_cast<const char*>(&weight), sizeof(weight));
  }
  return halves;
}

}  // namespace

// Steps far below a bf16 weight's resolution: one lost bit of a remainder shows in a weight soon.
TEST(Updater, ASplitMasterTrainsBf16WeightsExactlyAsFp32Ones) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    const std::unique_ptr<Group> group = make_single_group();
    Training fp32(*group, 0, DType::f32, optimizer_of(kind));
    Training bf16(*group, 0, DType::bf16, optimizer_of(kind));
    const std::string before = bf16.weight_bytes();
    for (int step = 1; step <= 120; ++step) {
      fp32.step(numbers_of(step, 3e-5));
      bf16.step(numbers_of(step, 3e-5));
      ASSERT_EQ(bf16.weight_bytes(), high_halves(fp32.weight_bytes())) << "optimizer " << row.name << " step " << step;
    }
    EXPECT_NE(bf16.weight_bytes(), before);
  }
}

TEST(Updater, AnFp16WeightIsItsFp32MasterRounded) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    const std::unique_ptr<Group> group = make_single_group();
    Training fp32(*group, 0, DType::f32, optimizer_of(kind));
    Training fp16(*group, 0, DType::f16, optimizer_of(kind));
    for (int step = 1; step <= 40; ++step) {
      fp32.step(numbers_of(step, 3e-4));
      fp16.step(numbers_of(step, 3e-4));
    }
    std::string expected(static_cast<size_t>(kNumel) * 2, '\0');
    kernels::convert(fp32.weight_bytes().data(), DType::f32, expected.data(), DType::f16, kNumel);
    EXPECT_EQ(fp16.weight_bytes(), expected) << "optimizer " << row.name;
  }
}

TEST(Updater, EveryStageAndWorldGivesTheSameBits) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const std::unique_ptr<Group> one = make_single_group();
      Training alone(*one, 0, dtype, optimizer_of(kind));
      for (int step = 1; step <= 5; ++step) alone.step(numbers_of(step, 1e-3));
      const std::string expected = alone.weight_bytes();
      for (int stage = 0; stage <= 3; ++stage) {
        testing::run_ranks(2, [&](Group& group) {
          Training shared(group, stage, dtype, optimizer_of(kind));
          // Both ranks bring the same gradient and the sum is not halved: grad_scale is.
          for (int step = 1; step <= 5; ++step) {
            StepNumbers numbers = numbers_of(step, 1e-3);
            numbers.grad_scale /= 2;
            shared.step(numbers);
          }
          EXPECT_EQ(shared.weight_bytes(), expected) << "optimizer " << row.name << " stage " << stage;
        });
      }
    }
  }
}

TEST(Updater, UsesTheRateAndDecayOfTheParametersGroup) {
  OptimizerConfig config;
  config.kind = OptimizerKind::sgd;
  const std::unique_ptr<Group> group = make_single_group();
  Training first(*group, 1, DType::f32, config, 0);
  Training second(*group, 1, DType::f32, config, 1);
  first.step(numbers_of(1, 0.01, 0.1));
  second.step(numbers_of(1, 0.01, 0.1));
  for (const int64_t i : {int64_t{0}, kNumel - 1}) {
    const double p = initial_at(i);
    const double g = 0.5 * grad_at(1, i);
    EXPECT_NEAR(element_at<float>(first.weight_bytes(), i), p - 0.01 * (g + 0.1 * p), 1e-6);
    EXPECT_NEAR(element_at<float>(second.weight_bytes(), i), p - 0.1 * g, 1e-6);
  }
}

TEST(Updater, AWrittenParameterIsTakenAsExact) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      testing::run_ranks(2, [&](Group& group) {
        OptimizerConfig sgd;
        sgd.kind = OptimizerKind::sgd;
        Training written(group, stage, dtype, sgd);
        Training fp32(group, stage, DType::f32, sgd);
        for (Training* training : {&written, &fp32}) {
          training->step(numbers_of(1, 1e-3));
          const FlatLayout& flat = training->parts.layout.units[0].flats[0];
          const std::vector<float> values(static_cast<size_t>(flat.numel), 1.5f);
          std::vector<std::byte> whole(values.size() * nbytes_of(flat.dtype));
          kernels::convert(values.data(), DType::f32, whole.data(), flat.dtype, flat.numel);
          if (!training->weights.is_sharded(0, 0))
            std::memcpy(training->weights.whole(0, 0), whole.data(), whole.size());
          training->states.reset_param(0, 0, flat.pieces[0], whole.data(), training->weights);
          for (int step = 2; step <= 40; ++step) training->step(numbers_of(step, 2e-2));
        }
        std::string expected = fp32.weight_bytes();
        if (dtype == DType::bf16) expected = high_halves(expected);
        if (dtype == DType::f16) {
          expected.resize(static_cast<size_t>(kNumel) * 2);
          kernels::convert(fp32.weight_bytes().data(), DType::f32, expected.data(), DType::f16, kNumel);
        }
        EXPECT_EQ(written.weight_bytes(), expected) << name_of(dtype) << " stage " << stage;
      });
    }
  }
}

TEST(Updater, HoldsWhatThePlanCounts) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    const OptimizerConfig config = optimizer_of(kind);
    for (int stage = 0; stage <= 3; ++stage) {
      testing::run_ranks(3, [&](Group& group) {
        Training training(group, stage, DType::bf16, config);
        MemoryOptions options;
        options.gradients.stage = stage;
        options.moments = moments_of(config);
        EXPECT_EQ(training.parts.ledger->line(MemoryKind::states).nbytes,
                  plan_memory(training.parts.layout, options).states);
      });
    }
  }
}

// A run of steps whose states lie on `tier`, as the device `queue` stands for sees it.
struct Outcome {
  std::string weights;
  std::vector<float> first, second, values;
  bool gradients_in_host = false;
  size_t fetched = 0, staged = 0;  // memory of the device and of the host for what moves
};
Outcome run_steps(Queue& queue, DType dtype, const OffloadConfig& offload, const ShoalConfig& shoal = {},
                  Tier weights_tier = Tier::device, double shared_at = 0) {
  const std::unique_ptr<Group> group = make_single_group();
  const int stage = weights_tier == Tier::device ? 1 : 3;
  Config config = config_with(optimizer_of(OptimizerKind::adamw), stage);
  config.zero.offload_optimizer = offload;
  config.zero.offload_param = {
      .tier = weights_tier, .nvme_path = offload.nvme_path, .buffer_count = 1, .max_in_cpu = 0};
  config.shoal = shoal;
  config.shoal.offload_chunk_size = 64;
  const std::vector<UnitSpec> specs = {Training::spec(dtype, 0)};
  const ModelLayout layout = lay_out(specs, {.mesh = 1, .persistence_threshold = 0});
  const auto ledger = std::make_shared<Ledger>();
  Weights weights(layout, shard_options(config), make_shard_file(layout, config, ledger), *group, queue, queue, ledger);
  const HostFlats in_host = queue.device() >= 0 ? gradients_of_host(layout, config) : HostFlats{};
  Gradients gradients(layout, {.stage = stage, .communication_dtype = DType::f32}, {}, *group, queue, queue, ledger,
                      in_host);
  const size_t sums = ledger->line(MemoryKind::staging).nbytes;
  KeptStates states(layout, config, 0, queue, ledger);
  Updater updater(layout, specs, config, states, queue, ledger);
  if (auto* far = dynamic_cast<testing::FarQueue*>(&queue)) {
    for (int chunk = 0; chunk < static_cast<int>(states.memory().chunks().size()); ++chunk) {
      const StateChunk& place = states.memory().chunks()[static_cast<size_t>(chunk)];
      if (place.tier != Tier::device) far->forbid(states.memory().look(chunk), place.nbytes);
    }
  }
  const int64_t numel = layout.units[0].flats[0].numel;
  const auto weight_bytes = [&] {
    std::string bytes(static_cast<size_t>(numel) * nbytes_of(dtype), '\0');
    weights.fetch(0);
    const std::byte* at = weights.is_sharded(0, 0) ? weights.shard(0, 0) : weights.whole(0, 0);
    std::memcpy(bytes.data(), at, bytes.size());
    return bytes;
  };
  std::vector<float> values(static_cast<size_t>(numel));
  for (int64_t i = 0; i < kNumel; ++i) values[static_cast<size_t>(i)] = initial_at(i);
  states.set_values(0, 0, {0, numel}, values.data(), weights);
  for (int step = 1; step <= 6; ++step) {
    std::vector<float> grad;
    for (int64_t i = 0; i < kNumel; ++i) grad.push_back(grad_at(step, i));
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of(grad));
    gradients.reduce(0);
    gradients.wait();
    updater.read_ahead();
    const StepConstants constants = constants_of(config.optimizer, numbers_of(step, 0.01));
    updater.begin_step(constants, weights, gradients);
    updater.read_ahead();
    updater.update(0, constants, weights, gradients);
    if (step == 3) updater.grow_ring(3000);
    if (step == 3 && shared_at > 0 && updater.can_share()) {
      // A bus that brings ten bytes while the host updates so many elements.
      EXPECT_GT(updater.share_with_host({.bus_nbytes = 10, .host_numel = shared_at}), 0);
    }
    if (step == 2 || step == 5) {  // a parameter written from outside, in the middle of training
      const std::string written = weight_bytes();
      states.reset_param(0, 0, layout.units[0].flats[0].pieces[0], reinterpret_cast<const std::byte*>(written.data()),
                         weights);
    }
  }
  Outcome outcome;
  outcome.weights = weight_bytes();
  outcome.gradients_in_host = gradients.is_in_host(0, 0);
  outcome.fetched = ledger->line(MemoryKind::state_ring).nbytes;
  outcome.staged = ledger->line(MemoryKind::staging).nbytes - sums;
  for (std::vector<float>* into : {&outcome.first, &outcome.second, &outcome.values}) into->resize(kNumel);
  states.get_moment(0, 0, 0, {0, kNumel}, outcome.first.data());
  states.get_moment(1, 0, 0, {0, kNumel}, outcome.second.data());
  states.get_values(0, 0, {0, kNumel}, outcome.values.data(), weights);
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.weights, expected.weights) << what;
  EXPECT_EQ(got.first, expected.first) << what;
  EXPECT_EQ(got.second, expected.second) << what;
  EXPECT_EQ(got.values, expected.values) << what;
}

TEST(Updater, TheHostUpdatesWhatADeviceCannotReachToTheSameBits) {
  const testing::TempFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::unique_ptr<Queue> near = make_host_queue();
    const Outcome expected = run_steps(*near, dtype, {});
    for (const Tier tier : {Tier::host, Tier::disk}) {
      for (const double ratio : {0.4, 1.0}) {
        const OffloadConfig offload{.tier = tier, .nvme_path = folder.path(), .buffer_count = 2, .ratio = ratio};
        for (const OffloadGradients gradients : {OffloadGradients::on, OffloadGradients::off}) {
          for (const Tier weights : {Tier::device, Tier::host, Tier::disk}) {
            testing::FarQueue far;
            const Outcome got = run_steps(
                far, dtype, offload, {.offload_update = OffloadUpdate::host, .offload_gradients = gradients}, weights);
            expect_same(got, expected,
                        fmt::format("{}: states on {}, weights on {}, gradients {}", name_of(dtype), name_of(tier),
                                    name_of(weights), gradients == OffloadGradients::on));
            EXPECT_GT(far.copy_streams_made, 0);
            const bool moves = gradients == OffloadGradients::on && ratio == 1;
            EXPECT_EQ(got.gradients_in_host, moves);
            const bool in_place = weights != Tier::device;
            EXPECT_EQ(got.fetched > 0, in_place && ratio < 1) << "what the device updates comes to it";
            EXPECT_EQ(got.staged > 0, !(moves && in_place)) << "something comes to the host";
          }
        }
      }
    }
  }
}

// A ring for one chunk, for a few, and for all.
TEST(Updater, StatesThatPassThroughTheDeviceGiveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::unique_ptr<Queue> near = make_host_queue();
    const Outcome expected = run_steps(*near, dtype, {});
    for (const int64_t ring : {int64_t{1}, int64_t{2000}, int64_t{1} << 20}) {
      for (const double ratio : {0.4, 1.0}) {
        testing::FarQueue far;
        const Outcome got = run_steps(far, dtype, {.tier = Tier::host, .ratio = ratio}, {.offload_ring_size = ring});
        expect_same(got, expected, std::string(name_of(dtype)) + " ring " + std::to_string(ring));
      }
    }
  }
}

// From the middle of training on, with shares of a few chunks and of almost all. (With its weights on the device fp32
// has no share: weights and gradients are as many bytes as its states.)
TEST(Updater, TheHostUpdatesAShareBesideTheDeviceToTheSameBits) {
  const testing::TempFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::unique_ptr<Queue> near = make_host_queue();
    const Outcome expected = run_steps(*near, dtype, {});
    for (const double host_numel : {1.0, 1000.0}) {
      for (const double ratio : {0.7, 1.0}) {
        for (const Tier weights : {Tier::device, Tier::host, Tier::disk}) {
          if (dtype == DType::f32 && weights == Tier::device) continue;
          testing::FarQueue far;
          const ShoalConfig shoal{.offload_ring_size = 1};
          far.refuse_above(2000);  // a ring that cannot grow
          const OffloadConfig offload{.tier = Tier::host, .nvme_path = folder.path(), .ratio = ratio};
          const Outcome got = run_steps(far, dtype, offload, shoal, weights, host_numel);
          expect_same(got, expected,
                      fmt::format("{} at {}, weights on {}", name_of(dtype), host_numel, name_of(weights)));
          EXPECT_EQ(far.copy_streams_made, weights == Tier::device ? 2 : 3) << "the host has a part";
        }
      }
    }
  }
}

TEST(Updater, AShareMayComeOnTopOfWhatTheHostUpdates) {
  const testing::TempFolder folder;
  const std::unique_ptr<Queue> near = make_host_queue();
  const Outcome expected = run_steps(*near, DType::bf16, {});
  const OffloadConfig offload{.tier = Tier::disk, .nvme_path = folder.path(), .buffer_count = 2};
  testing::FarQueue far;
  const ShoalConfig shoal{.offload_ring_size = 1, .offload_disk_ratio = 0.2};
  far.refuse_above(2000);  // a ring that cannot grow
  expect_same(run_steps(far, DType::bf16, offload, shoal, Tier::device, 1000.0), expected, "disk and a share");
  EXPECT_EQ(far.copy_streams_made, 3);
}

TEST(Updater, WeightsOfTheHostComeToTheDeviceForTheirUpdate) {
  const testing::TempFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::unique_ptr<Queue> near = make_host_queue();
    const Outcome expected = run_steps(*near, dtype, {});
    for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
      testing::FarQueue far;
      const OffloadConfig offload{.tier = tier, .nvme_path = folder.path(), .buffer_count = 2};
      const Outcome got = run_steps(far, dtype, offload, {.offload_ring_size = 2000}, Tier::host);
      expect_same(got, expected, std::string(name_of(dtype)) + " " + std::string(name_of(tier)));
    }
  }
}

TEST(Updater, WeightsOfTheDiskAreUpdatedToTheSameBitsThere) {
  const testing::TempFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::unique_ptr<Queue> near = make_host_queue();
    const Outcome expected = run_steps(*near, dtype, {});
    for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
      testing::FarQueue far;
      const OffloadConfig offload{.tier = tier, .nvme_path = folder.path(), .buffer_count = 2};
      const std::string what = std::string(name_of(dtype)) + " " + std::string(name_of(tier));
      expect_same(run_steps(*near, dtype, offload, {}, Tier::disk), expected, what);
      expect_same(run_steps(far, dtype, offload, {.offload_ring_size = 2000}, Tier::disk), expected, what + " far");
    }
  }
}

// Three units whose weights are in host memory or on disk, and what becomes of their homes.
TEST(Updater, WeightsAreHomeWhenTheyAreNeededAndOnDiskAtOnce) {
  const testing::TempFolder folder;
  for (const Tier tier : {Tier::host, Tier::disk}) {
    testing::FarQueue far;
    far.streams = [] { return std::make_unique<testing::LateCopyStreams>(); };
    const std::unique_ptr<Group> group = make_single_group();
    Config config = config_with(optimizer_of(OptimizerKind::sgd), 3);
    config.zero.offload_param = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .max_in_cpu = 0};
    config.shoal.offload_chunk_size = 64;
    std::vector<UnitSpec> specs;
    for (int unit = 0; unit < 3; ++unit) specs.push_back(unit_spec(unit, {kNumel}));
    const ModelLayout layout = lay_out(specs, {.mesh = 1, .persistence_threshold = 0});
    const auto ledger = std::make_shared<Ledger>();
    Weights weights(layout, shard_options(config), make_shard_file(layout, config, ledger), *group, far, far, ledger);
    Gradients gradients(layout, {.stage = 3}, {}, *group, far, far, ledger, {});
    KeptStates states(layout, config, 0, far, ledger);
    Updater updater(layout, specs, config, states, far, ledger);
    EXPECT_EQ(updater.runs_ahead(), tier == Tier::host ? 1 : 0);
    gradients.begin_micro_step(0);
    for (int unit = 2; unit >= 0; --unit) {
      gradients.deposit(unit, 0, tensor_of(std::vector<float>(kNumel, 1.0f)));
      gradients.reduce(unit);
    }
    gradients.wait();
    const auto moved = [&] {  // of each unit: whether its home has the last element's new weight
      std::vector<bool> units;
      for (int unit = 0; unit < 3; ++unit) {
        weights.fetch(unit);
        units.push_back(reinterpret_cast<const float*>(weights.shard(unit, 0))[kNumel - 1] != 0);
      }
      return units;
    };
    const StepConstants constants = constants_of(config.optimizer, numbers_of(1, 0.01));
    updater.begin_step(constants, weights, gradients);
    for (int unit = 0; unit < 3; ++unit) updater.update(unit, constants, weights, gradients);
    if (tier == Tier::disk) {
      EXPECT_EQ(moved(), (std::vector<bool>{true, true, true}));
      continue;
    }
    EXPECT_FALSE(moved()[2]);
    updater.need(1);
    EXPECT_EQ(moved(), (std::vector<bool>{true, true, false}));
    updater.grow_ring(1 << 20);  // lists the work anew, or not
    updater.need(2);
    EXPECT_EQ(moved(), (std::vector<bool>{true, true, true}));
  }
}

}  // namespace shoal
