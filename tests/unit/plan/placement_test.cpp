#include "plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// Units of 16 Mi parameters in bf16.
MemoryPlan plan_of_units(const Config& config, int count) {
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < count; ++unit) {
    units.push_back({.name = "u" + std::to_string(unit),
                     .params = {{"p", {16 * (int64_t{1} << 20)}, DType::bf16, true, 0}},
                     .borrows = {}});
  }
  return plan_memory(lay_out(units, {.mesh = 1, .persistence_threshold = 0}), memory_options(config, true));
}

// Four: 128 MiB of weights, as much of gradients, 640 MiB of states.
MemoryPlan plan_of(const Config& config) { return plan_of_units(config, 4); }

Config config_at(int stage) {
  Config config;
  config.precision = Precision::bf16;
  config.zero.stage = stage;
  config.zero.prefetch_bucket_size = 0;
  config.shoal.offload_chunk_size = 1 << 20;
  config.shoal.offload_ring_size = static_cast<int64_t>(20 * kMiB);
  return config;
}

TEST(Placement, KeepsEverythingOnADeviceThatHasRoomToTheByte) {
  const Config config = config_at(3);
  const size_t all = plan_of(config).total();
  const Placement resident = place({all + 100, 0}, 100, config, plan_of);
  EXPECT_EQ(resident.optimizer, Tier::device);
  EXPECT_EQ(settings_of(resident), "");
  EXPECT_EQ(with(config, resident).zero, config.zero);
  EXPECT_EQ(place({all + 99, 1000 * kMiB}, 100, config, plan_of).optimizer, Tier::host);
}

TEST(Placement, MovesNoMoreThanItMustAndFits) {
  for (const int stage : {0, 1, 3}) {
    const Config config = config_at(stage);
    for (const size_t device : {400 * kMiB, 500 * kMiB, 700 * kMiB}) {
      const Placement placement = place({device, 1000 * kMiB}, 30 * kMiB, config, plan_of);
      EXPECT_EQ(placement.optimizer, Tier::host);
      EXPECT_EQ(placement.param, Tier::device);
      EXPECT_EQ(placement.plan, plan_of(with(config, placement)));
      EXPECT_LE(placement.plan.total() + 30 * kMiB, device);
      Placement less = placement;
      less.ratio -= 0.02;
      EXPECT_GT(plan_of(with(config, less)).total() + 30 * kMiB, device) << "stage " << stage << " moves too much";
    }
  }
}

TEST(Placement, DoesNotMindWhatTheConfigMovesItself) {
  Config moved = config_at(3);
  moved.zero.offload_optimizer = {.tier = Tier::host, .ratio = 0.1};
  const Placement placement = place({500 * kMiB, 1000 * kMiB}, 0, moved, plan_of);
  EXPECT_EQ(placement.ratio, place({500 * kMiB, 1000 * kMiB}, 0, config_at(3), plan_of).ratio);
}

TEST(Placement, TakesTheDiskWhenTheHostIsSmallAndAPathIsNamed) {
  Config config = config_at(3);
  const Room room{400 * kMiB, 100 * kMiB};
  const std::string message = testing::message_of([&] { place(room, 0, config, plan_of); });
  EXPECT_THAT(message, HasSubstr("no placement fits"));
  EXPECT_THAT(message, HasSubstr("nvme_path"));
  EXPECT_EQ(message.find("stage 3"), std::string::npos) << "it is stage 3 already";
  config.zero.offload_optimizer.nvme_path = "/local";
  const Placement placement = place(room, 0, config, plan_of);
  EXPECT_EQ(placement.optimizer, Tier::disk);
  EXPECT_EQ(with(config, placement).zero.offload_optimizer.nvme_path, "/local");
  EXPECT_THAT(settings_of(placement), HasSubstr("offload_optimizer to nvme, ratio 0."));
}

TEST(Placement, GivesTheDiskNoMoreThanTheHostCannotHold) {
  Config config = config_at(3);
  config.zero.offload_optimizer.nvme_path = "/local";
  for (const size_t host : {200 * kMiB, 300 * kMiB, 400 * kMiB}) {
    const Placement placement = place({400 * kMiB, host}, 0, config, plan_of);
    EXPECT_EQ(placement.plan, plan_of(with(config, placement)));
    EXPECT_GT(placement.plan.host_states, 0u);
    EXPECT_GT(placement.plan.disk_states, 0u);
    EXPECT_LE(placement.plan.host_total(), host);
    EXPECT_LE(placement.plan.total(), 400 * kMiB);
    EXPECT_THAT(settings_of(placement), HasSubstr("with shoal.offload_disk_ratio 0."));
    Placement less = placement;
    less.disk_ratio -= 0.01;
    EXPECT_GT(plan_of(with(config, less)).host_total(), host) << "the disk has too much";
  }
}

TEST(Placement, MovesGradientsBeforeWeightsAtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    const Config config = config_at(stage);
    const Room room{270 * kMiB, 2000 * kMiB};
    const Placement placement = place(room, 0, config, plan_of);
    EXPECT_TRUE(placement.gradients) << stage;
    EXPECT_EQ(placement.param, Tier::device) << stage;
    EXPECT_EQ(settings_of(placement), "offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu");
    const MemoryPlan plan = plan_of(with(config, placement));
    EXPECT_EQ(plan, placement.plan);
    EXPECT_EQ(plan.gradients, 0u);
    EXPECT_EQ(plan.host_gradients, 128 * kMiB);
    EXPECT_LE(plan.total(), room.device);
  }
}

TEST(Placement, KeepsGradientsWhereTheConfigSaysSo) {
  const Room room{270 * kMiB, 2000 * kMiB};
  Config kept = config_at(3), by_gpu = config_at(3);
  kept.shoal.offload_gradients = OffloadGradients::off;
  by_gpu.shoal.offload_update = OffloadUpdate::device;
  for (const Config& config : {kept, by_gpu}) {
    const Placement placement = place(room, 0, config, plan_of);
    EXPECT_FALSE(placement.gradients);
    EXPECT_EQ(placement.param, Tier::host);
    EXPECT_EQ(with(config, placement).shoal, config.shoal);
  }
}

TEST(Placement, WithoutAGpuStatesThatMemoryCannotHoldGoToDiskAndNoMore) {
  const auto on_host = [](const Config& config) {
    return plan_memory(lay_out({{.name = "u", .params = {{"p", {64 << 20}, DType::bf16, true, 0}}, .borrows = {}}},
                               {.mesh = 1, .persistence_threshold = 0}),
                       memory_options(config, /*on_gpu=*/false));
  };
  Config config = config_at(3);
  const size_t all = on_host(config).total();
  EXPECT_EQ(settings_of(place_without_gpu(all + 100, 100, config, on_host)), "");
  const std::string message = testing::message_of([&] { place_without_gpu(all + 99, 100, config, on_host); });
  EXPECT_THAT(message, HasSubstr("offload_optimizer.nvme_path for the disk"));
  config.zero.offload_optimizer.nvme_path = "/local";
  for (const size_t missing : {kMiB, 100 * kMiB, 500 * kMiB}) {
    const size_t host = all - missing;
    const Placement placement = place_without_gpu(host, 0, config, on_host);
    EXPECT_EQ(placement.optimizer, Tier::disk);
    EXPECT_EQ(placement.plan, on_host(with(config, placement)));
    EXPECT_LE(placement.plan.total() + placement.plan.host_total(), host);
    EXPECT_GT(placement.plan.disk_states, 0u);
    Placement less = placement;
    less.ratio -= 0.01;
    const MemoryPlan plan = on_host(with(config, less));
    EXPECT_GT(plan.total() + plan.host_total(), host) << "the disk has too much";
  }
  config.zero.offload_param.tier = Tier::disk;
  for (const double ratio : {1.0, 0.5, 0.0}) {
    config.zero.offload_param.ratio = ratio;
    const Placement weights_too = place_without_gpu(all, 0, config, on_host);
    EXPECT_EQ(with(config, weights_too).zero.offload_param, config.zero.offload_param) << "the config has them there";
  }
  config.zero.offload_param = {};
  EXPECT_THAT(testing::message_of([&] { place_without_gpu(100 * kMiB, 0, config, on_host); }),
              HasSubstr("with its states on disk"));
}

// With states alone away, and with weights too, which have slots beside the ring.
TEST(Placement, ABudgetOfModelStatesIsFilledByTheRing) {
  Config config = config_at(3);
  config.shoal.offload_ring_size = 0;
  config.shoal.offload_gradients = OffloadGradients::off;
  const auto many_units = [](const Config& of) { return plan_of_units(of, 40); };
  for (const size_t device : {6000 * kMiB, 2900 * kMiB}) {
    const Placement placement = place({device, 20000 * kMiB}, 0, config, many_units);
    EXPECT_EQ(placement.param, device < 3000 * kMiB ? Tier::host : Tier::device);
    const Config placed = with(config, placement), filled = with_ring_within(device, placed, many_units);
    const size_t chunk = 10 * kMiB;
    EXPECT_LE(many_units(filled).total(), device);
    EXPECT_GT(many_units(filled).total(), device - chunk) << "what is left holds no chunk";
    Config fixed = placed;
    fixed.shoal.offload_ring_size = 1 << 20;
    EXPECT_EQ(with_ring_within(device, fixed, many_units).shoal, fixed.shoal) << "the config's own size stands";
  }
}

// The host holds all states with a share of the weights, and not gradients too.
TEST(Placement, TakesTheDiskLast) {
  Config config = config_at(3);
  config.zero.offload_optimizer.nvme_path = "/local";
  EXPECT_EQ(place({270 * kMiB, 760 * kMiB}, 0, config, plan_of).param, Tier::host);
  const Placement disk = place({180 * kMiB, 400 * kMiB}, 0, config, plan_of);
  EXPECT_EQ(disk.optimizer, Tier::disk);
  EXPECT_FALSE(disk.gradients) << "it fits without";
  EXPECT_EQ(disk.plan, plan_of(with(config, disk)));
  EXPECT_LE(disk.plan.host_total(), 400 * kMiB);
  EXPECT_LE(disk.plan.total(), 180 * kMiB);
}

TEST(Placement, MovesWeightsLastAndAtStage3Only) {
  const Room room{180 * kMiB, 2000 * kMiB};
  const Placement placement = place(room, 0, config_at(3), plan_of);
  EXPECT_EQ(placement.param, Tier::host);
  EXPECT_THAT(settings_of(placement), HasSubstr("and offload_param"));
  EXPECT_LE(placement.plan.total(), room.device);
  EXPECT_EQ(placement.ratio, 1) << "states go first";
  EXPECT_THAT(testing::message_of([&] { place(room, 0, config_at(2), plan_of); }), HasSubstr("stage 3"));
}

// Over a config that moves nothing, one that moves other things, and one that leaves it to Shoal.
TEST(Placement, FlagsMakeTheConfigOfThePlacement) {
  const std::vector<Placement> placements = {
      {.optimizer = Tier::host, .ratio = 0.5},
      {.optimizer = Tier::host, .gradients = true},
      {.optimizer = Tier::host, .param = Tier::host, .param_ratio = 0.25},
      {.param = Tier::host},
      {.optimizer = Tier::disk,
       .ratio = 0.75,
       .disk_ratio = 0.5,
       .param = Tier::disk,
       .param_ratio = 0.5,
       .max_in_cpu = 7},
  };
  const std::vector<std::string> bases = {
      R"({"train_batch_size": 1, "zero_optimization": {"stage": 1}})",
      R"({"train_batch_size": 1, "shoal": {"offload_disk_ratio": 0.3}, "zero_optimization": {"stage": 3,
          "offload_optimizer": {"device": "nvme", "nvme_path": "/local", "ratio": 0.9, "buffer_count": 7},
          "offload_param": {"device": "cpu", "ratio": 0.9}}})",
      R"({"train_batch_size": 1, "shoal": {"placement": "auto"}, "zero_optimization": {"stage": 3}})"};
  for (const std::string& base : bases) {
    const Config config = Config::from_text(base);
    for (const Placement& placement : placements) {
      const std::string flags = flags_of(config, placement);
      std::vector<std::string> settings;
      for (std::string rest = flags; !rest.empty();) {
        ASSERT_TRUE(rest.starts_with("--set ")) << flags;
        const size_t next = rest.find(" --set ", 1);
        settings.push_back(rest.substr(6, next == std::string::npos ? next : next - 6));
        rest = next == std::string::npos ? "" : rest.substr(next + 1);
      }
      Config expected = with(config, placement);
      expected.zero.stage = 3;
      expected.shoal.auto_placement = false;
      Config made = Config::from_text(base, {}, "config", settings);
      for (OffloadConfig* offload : {&made.zero.offload_optimizer, &made.zero.offload_param}) {
        if (offload->nvme_path == "<folder>") offload->nvme_path.clear();
      }
      EXPECT_EQ(made.zero, expected.zero) << flags;
      EXPECT_EQ(made.shoal, expected.shoal) << flags;
    }
  }
}

// The units from the front stay, as many as fit.
TEST(Placement, MovesNoMoreWeightsThanItMust) {
  Config config = config_at(3);
  config.shoal.offload_gradients = OffloadGradients::off;
  int partly = 0;
  for (const size_t device : {250 * kMiB, 270 * kMiB, 274 * kMiB}) {
    const Placement placement = place({device, 2000 * kMiB}, 0, config, plan_of);
    EXPECT_EQ(placement.param, Tier::host);
    EXPECT_EQ(placement.plan, plan_of(with(config, placement)));
    EXPECT_LE(placement.plan.total(), device);
    EXPECT_EQ(placement.plan.weights + placement.plan.host_weights, 128 * kMiB);
    partly += placement.plan.weights > 0;
    Placement less = placement;
    less.param_ratio -= 0.01;
    EXPECT_GT(plan_of(with(config, less)).total(), device) << "too many weights leave";
  }
  EXPECT_GT(partly, 0);
}

// A host that cannot hold the weights beside the buffers of states on disk: they go to disk too, where offload_param
// names one, as few as must be.
TEST(Placement, WeightsGoToDiskWhereAPathForThemIsNamed) {
  Config config = config_at(3);
  config.shoal.offload_gradients = OffloadGradients::off;
  config.zero.offload_optimizer.nvme_path = "/local";
  config.zero.offload_param.buffer_count = 2;
  const Room room{190 * kMiB, 140 * kMiB};
  const auto place_it = [&] { return place(room, 0, config, plan_of); };
  EXPECT_THAT(testing::message_of(place_it), HasSubstr("offload_param.nvme_path for weights on disk"));
  config.zero.offload_param.nvme_path = "/local";
  const Placement placement = place_it();
  EXPECT_EQ(placement.param, Tier::disk);
  EXPECT_EQ(placement.optimizer, Tier::disk);
  EXPECT_THAT(settings_of(placement), HasSubstr("offload_param to nvme with max_in_cpu "));
  EXPECT_EQ(placement.plan, plan_of(with(config, placement)));
  EXPECT_GT(placement.plan.disk_weights, 0u);
  EXPECT_LE(placement.plan.total(), room.device);
  EXPECT_LE(placement.plan.host_total(), room.host);
  Placement less = placement;
  less.max_in_cpu += 16 << 20;  // a unit
  EXPECT_GT(plan_of(with(config, less)).host_total(), room.host) << "the disk has too much";
  const Placement larger = place({room.device, 400 * kMiB}, 0, config, plan_of);
  EXPECT_EQ(larger.param, Tier::host) << "the host has room for them";
}

TEST(Placement, WeightsMayGoToDiskAlone) {
  Config config = config_at(3);
  config.zero.offload_param = {.nvme_path = "/local", .buffer_count = 2};
  config.shoal.offload_gradients = OffloadGradients::off;
  const size_t device = plan_of(with(config, {.ratio = 0, .param = Tier::disk})).total();
  ASSERT_LT(device, plan_of(config).total());
  const Placement placement = place({device, 80 * kMiB}, 0, config, plan_of);
  EXPECT_EQ(placement.param, Tier::disk);
  EXPECT_EQ(placement.optimizer, Tier::device);
  EXPECT_EQ(placement.plan.disk_states, 0u);
}

// Plain SGD has no states in fp32: there is nothing to move but weights.
TEST(Placement, MovesWeightsAloneWhereThereAreNoStates) {
  Config config = config_at(3);
  config.optimizer.kind = OptimizerKind::sgd;
  const auto fp32 = [](const Config& of) {
    return plan_memory(lay_out({{.name = "u0", .params = {{"p", {1 << 24}, DType::f32, true, 0}}, .borrows = {}},
                                {.name = "u1", .params = {{"p", {1 << 24}, DType::f32, true, 0}}, .borrows = {}},
                                {.name = "u2", .params = {{"p", {1 << 24}, DType::f32, true, 0}}, .borrows = {}},
                                {.name = "u3", .params = {{"p", {1 << 24}, DType::f32, true, 0}}, .borrows = {}}},
                               {.mesh = 1, .persistence_threshold = 0}),
                       memory_options(of, true));
  };
  const Placement placement = place({450 * kMiB, 1000 * kMiB}, 0, config, fp32);
  EXPECT_EQ(settings_of(placement), "offload_param, ratio 0.51") << "two units of four";
}

}  // namespace
}  // namespace shoal
