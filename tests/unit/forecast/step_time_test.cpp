#include "forecast/step_time.h"

#include <gtest/gtest.h>

#include <chrono>

#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using testing::config_at;
using testing::four_gpus;
using testing::llama_7b;
using testing::subject_of;

struct Setting {
  int stage = 3;
  int world = 4;
  int64_t accumulation = 1;
  Sharding sharding = {};
};

StepQuestion question(const Setting& setting, const Cluster& cluster = four_gpus(),
                      const DecoderShape& shape = llama_7b()) {
  static PlanSubject subject;  // outlives the question's references
  subject = subject_of(shape);
  const Config config = with_sharding(config_at(setting.stage, setting.accumulation), setting.sharding);
  return question_of({subject, config, shape, {.batch = 2, .time = 2048}, cluster, setting.world});
}

double sum_of(const StepTime& time) {
  return time.compute + time.gathers + time.reductions + time.update + time.offload;
}

TEST(StepTime, ThePartsAddUpToTheStep) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const int64_t accumulation : {1, 2, 3, 7}) {
        const StepTime time = step_time(question({stage, world, accumulation}));
        EXPECT_GT(time.seconds, 0);
        EXPECT_NEAR(sum_of(time), time.seconds, 1e-6 * time.seconds) << stage << " " << world << " " << accumulation;
      }
    }
  }
}

TEST(StepTime, OneRankComputesAndUpdatesAndNothingElse) {
  const StepQuestion of = question({3, 1});
  double compute = 0;
  for (const UnitSeconds& unit : of.units) compute += unit.forward + unit.backward;
  const StepTime time = step_time(of);
  EXPECT_NEAR(time.compute, compute, 1e-9);
  EXPECT_NEAR(time.seconds, compute + time.update, 1e-9);
  EXPECT_EQ(time.gather_busy + time.reduction_busy + time.host_nbytes, 0);
}

// Nothing hides what is waited for at once: the floor of a step is its computing, its ceiling all of it in a row.
TEST(StepTime, LiesBetweenComputingAndEverythingInARow) {
  for (const int stage : {0, 1, 2, 3}) {
    StepQuestion of = question({stage});
    const StepTime time = step_time(of);
    EXPECT_GT(time.seconds, time.compute);
    EXPECT_LE(
        time.seconds,
        (time.compute + time.update + time.gather_busy + time.reduction_busy) * (1 + of.calibration.shared) + 1e-3);
    // Gathers and reductions share the network, so a gather may take twice as long as alone.
    EXPECT_LE(time.gathers, 2 * time.gather_busy + of.calibration.shared * time.compute + 1e-3);
    of.manner.waits = true;
    of.limits = {};
    EXPECT_GT(step_time(of).seconds, time.seconds) << "overlap is worth something at stage " << stage;
  }
}

TEST(StepTime, BytesBetweenHostsAreThoseOfTheRoutes) {
  const PlanSubject subject = subject_of(llama_7b());
  const auto nbytes = static_cast<double>(subject.numel() * 2);
  // Two gathers and an exchange of two ranks a host, each of what is on the other host; small parameters stay whole.
  EXPECT_NEAR(step_time(question({3})).host_nbytes, nbytes * (0.5 + 0.5 + 2 * 0.5), 0.01 * nbytes);
  StepQuestion ring = question({3});
  ring.manner.exchanges = false;
  EXPECT_NEAR(step_time(ring).host_nbytes, nbytes * 1.5, 0.01 * nbytes);
  // Each micro-step gathers and reduces again.
  EXPECT_NEAR(step_time(question({3, 4, 5})).host_nbytes, 5 * step_time(question({3})).host_nbytes, 0.02 * nbytes);
  // Groups of a host: leaves cross to the owners on the other host, sums come back.
  StepQuestion groups = question({3, 4, 1, {Sharding::Kind::group, 2}});
  EXPECT_NEAR(step_time(groups).host_nbytes, nbytes * (1 + 0.5), 0.02 * nbytes);
  // In rings sums alone cross, there and back.
  groups.manner.exchanges = false;
  EXPECT_NEAR(step_time(groups).host_nbytes, nbytes, 0.02 * nbytes);
  // A second copy: the gather of backward stays inside.
  EXPECT_NEAR(step_time(question({3, 4, 1, {Sharding::Kind::second_copy, 2}})).host_nbytes,
              nbytes * (0.5 + 0.5 + 2 * 0.0), 0.52 * nbytes);
}

TEST(StepTime, ASlowerNetworkNeverMakesAStepFaster) {
  double before = 0;
  for (const char* gbits : {"3200", "800", "400", "100", "10"}) {
    Cluster cluster = four_gpus();
    cluster.between = between_link(gbits, "");
    const double seconds = step_time(question({3}, cluster)).seconds;
    EXPECT_GE(seconds, before) << gbits;
    before = seconds;
  }
  Cluster cluster = four_gpus();
  cluster.between = between_link("10", "");
  EXPECT_LT(step_time(question({3, 4, 1, {Sharding::Kind::group, 2}}, cluster)).seconds, before)
      << "groups inside hosts are what a slow network wants";
}

TEST(StepTime, ManyMicroStepsFollowFromAFew) {
  const double three = step_time(question({3, 4, 3})).seconds, four = step_time(question({3, 4, 4})).seconds;
  const double five = step_time(question({3, 4, 5})).seconds;
  EXPECT_NEAR(five - four, four - three, 1e-9);
  EXPECT_GT(four, three);
}

TEST(StepTime, MoreRanksThanLayersAndOddWorlds) {
  DecoderShape shape = llama_7b();
  shape.layers = 1;
  for (const int world : {1, 2, 3, 5, 7, 64}) {
    Cluster cluster = *find_cluster("H100");
    cluster.hosts = (world + 7) / 8;
    const StepTime time = step_time(question({3, world}, cluster, shape));
    EXPECT_GT(time.seconds, 0) << world;
    EXPECT_NEAR(sum_of(time), time.seconds, 1e-6 * time.seconds) << world;
  }
}

// As large as anybody trains: one rank stands for all. The limit is generous for a busy machine and a build without
// optimization.
TEST(StepTime, SixteenThousandGpusTakeSeconds) {
  const DecoderShape shape{
      .hidden = 16384, .layers = 126, .heads = 128, .q_width = 16384, .kv_width = 1024, .ffn = 53248, .vocab = 128256};
  Cluster cluster = *find_cluster("H100");
  cluster.hosts = 2048;
  const auto begin = std::chrono::steady_clock::now();
  const StepTime time = step_time(question({3, 16384, 4}, cluster, shape));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 20);
  EXPECT_GT(time.seconds, time.compute);
  EXPECT_NEAR(sum_of(time), time.seconds, 1e-6 * time.seconds);
}

TEST(StepTime, ThroughputIsTokensFlopsAndMfu) {
  StepTime time;
  time.seconds = 2;
  const Throughput rate = throughput(time, llama_7b(), {.batch = 4, .time = 2048}, 3, 8, *find_cluster("H100"));
  EXPECT_DOUBLE_EQ(rate.tokens_a_gpu, 4 * 2048 * 3 / 2.0);
  EXPECT_DOUBLE_EQ(rate.tokens, 8 * rate.tokens_a_gpu);
  EXPECT_DOUBLE_EQ(rate.mfu, rate.tokens_a_gpu * model_flops_a_token(llama_7b(), 2048) / 989e12);
  EXPECT_EQ(throughput({}, llama_7b(), {}, 1, 1, *find_cluster("H100")).tokens, 0);
}

}  // namespace
}  // namespace shoal::forecast
