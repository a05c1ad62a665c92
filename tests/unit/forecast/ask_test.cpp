#include "forecast/ask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"
#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using shoal::testing::message_of;
using testing::config_at;
using testing::four_gpus;
using ::testing::HasSubstr;
using testing::llama_7b;
using testing::subject_of;

TEST(Ask, TheQuestionIsThatOfTheConfig) {
  const PlanSubject subject = subject_of(llama_7b());
  Config config = config_at(3, 2);
  config.zero.overlap_comm = false;
  config.shoal.reduce = Reduce::nccl;
  const StepQuestion question = question_of({subject, config, llama_7b(), {.batch = 1, .time = 128}, four_gpus(), 4});
  EXPECT_EQ(question.layout.mesh.to_text(), "4");
  EXPECT_EQ(question.gradients.stage.number, 3);
  EXPECT_EQ(question.gradients.accumulation_steps, 2);
  EXPECT_EQ(question.limits.prefetch_numel, 0) << "nothing runs ahead without overlap";
  EXPECT_TRUE(question.manner.waits);
  EXPECT_FALSE(question.manner.exchanges);
  EXPECT_EQ(question.manner.reduce_slots, 1);
  EXPECT_EQ(question.units.size(), question.layout.units.size());
}

TEST(Ask, GroupsAndSecondCopiesStandOnAMesh) {
  const PlanSubject subject = subject_of(llama_7b());
  const Config config = config_at(3);
  const auto of = [&](Sharding sharding) {
    const Config cut = with_sharding(config, sharding);
    return question_of({subject, cut, llama_7b(), {.batch = 1, .time = 128}, four_gpus(), 4});
  };
  const StepQuestion group = of({Sharding::Kind::group, 2});
  EXPECT_EQ(group.layout.mesh.to_text(), "replica 2 x shard 2");
  EXPECT_EQ(group.gradients.stage.row, (StageRow{Over::shard, Over::shard, Over::shard}));
  EXPECT_FALSE(group.manner.backward_from);
  const StepQuestion copy = of({Sharding::Kind::second_copy, 2});
  EXPECT_EQ(copy.gradients.stage.row, (StageRow{Over::world, Over::world, Over::world}));
  EXPECT_EQ(copy.manner.backward_from, Over::shard);
  EXPECT_EQ(of({Sharding::Kind::group, 4}).layout.mesh.to_text(), "4") << "a group of all is the world";
  EXPECT_ANY_THROW(of({Sharding::Kind::group, 3})) << "groups are equal";
}

TEST(Ask, MemoryOfGroupsLiesBetweenOneRankAndAll) {
  const PlanSubject subject = subject_of(llama_7b());
  const auto total = [&](int world, Sharding sharding) {
    const MemoryPlan memory = plan_stage(subject, with_sharding(config_at(3), sharding), world, true).memory;
    return memory.model_states() + memory.second_weights;
  };
  const size_t all = total(16, {}), groups = total(16, {Sharding::Kind::group, 4});
  const size_t copy = total(16, {Sharding::Kind::second_copy, 4});
  EXPECT_NEAR(static_cast<double>(groups), static_cast<double>(total(4, {})), 0.01 * static_cast<double>(groups));
  EXPECT_NEAR(static_cast<double>(copy - all), 6.7384e9 * 2 / 4, 0.02e9) << "the second copy of the weights";
  EXPECT_LT(all, copy);
  EXPECT_LT(copy, groups);
}

TEST(Ask, NumbersThatAreMissingAreNamed) {
  const PlanSubject subject = subject_of(llama_7b());
  const auto message = [&](const std::function<void(Cluster&, Config&, Workload&)>& change) {
    Cluster cluster = four_gpus();
    Config config = config_at(3);
    Workload work{.batch = 1, .time = 128};
    change(cluster, config, work);
    return message_of([&] { forecast_step({subject, config, llama_7b(), work, cluster, 4}); });
  };
  EXPECT_EQ(message([](Cluster&, Config&, Workload&) {}), "");
  EXPECT_THAT(message([](Cluster& c, Config&, Workload&) { c.gpu.memory_bandwidth = 0; }),
              HasSubstr("the memory bandwidth of H100"));
  EXPECT_THAT(message([](Cluster& c, Config&, Workload&) { c.gpu.bf16_flops = 0; }), HasSubstr("bf16_tflops"));
  EXPECT_THAT(message([](Cluster& c, Config&, Workload&) { c.inside.bandwidth = 0; }), HasSubstr("inside a host"));
  EXPECT_THAT(message([](Cluster& c, Config&, Workload&) { c.between.bandwidth = 0; }), HasSubstr("between hosts"));
  EXPECT_THAT(message([](Cluster& c, Config&, Workload& w) { c.gpu.fp8_flops = 0, w.fp8 = true; }),
              HasSubstr("fp8_tflops"));
  EXPECT_THAT(message([](Cluster& c, Config& config, Workload&) {
                c.host.bus = 0;
                config.zero.offload_optimizer.tier = Tier::host;
              }),
              HasSubstr("host.bus_gbytes_per_second"));
  EXPECT_THAT(message([](Cluster& c, Config& config, Workload&) {
                c.host.disk_read = 0;
                config.zero.offload_optimizer.tier = Tier::disk;
              }),
              HasSubstr("on disk"));
}

TEST(Ask, ASecondCopyOfTheConfigIsOneOfTheForecast) {
  for (const Sharding& sharding :
       {Sharding{}, Sharding{Sharding::Kind::group, 4}, Sharding{Sharding::Kind::second_copy, 4}}) {
    EXPECT_EQ(sharding_of(with_sharding(config_at(3), sharding), 8), sharding);
    EXPECT_EQ(sharding_of(with_sharding(config_at(3), sharding), 4), Sharding{}) << "all ranks";
    EXPECT_EQ(sharding_of(with_sharding(config_at(0), sharding), 8), Sharding{}) << "nothing is cut";
  }
  Config by_shoal = config_at(2);
  by_shoal.shoal.shard_size = 2;
  EXPECT_EQ(sharding_of(by_shoal, 8), (Sharding{Sharding::Kind::group, 2}));
  EXPECT_EQ(sharding_of(with_sharding(by_shoal, {}), 8), Sharding{});
}

TEST(Ask, ShardingHasAName) {
  EXPECT_EQ(name_of(Sharding{}), "all ranks");
  EXPECT_EQ(name_of(Sharding{Sharding::Kind::group, 8}), "groups of 8");
  EXPECT_EQ(name_of(Sharding{Sharding::Kind::second_copy, 8}), "hpZ of 8");
}

}  // namespace
}  // namespace shoal::forecast
