#include "forecast/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "message_of.h"
#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using shoal::testing::message_of;
using testing::config_at;
using ::testing::HasSubstr;
using testing::llama_7b;

struct Searched {
  PlanSubject subject;
  SearchQuestion question;
};

// Activations of so many bytes a sample, a third with selective and a tenth with full recompute.
SearchQuestion question_on(const PlanSubject& subject, const Cluster& cluster, int world, double sample = 8e9) {
  SearchQuestion question{.subject = subject,
                          .config = config_at(3),
                          .shape = llama_7b(),
                          .work = {.batch = 1, .time = 2048},
                          .cluster = cluster,
                          .world = world,
                          .activations = {}};
  question.activations = [sample](int64_t batch, Recomputes recomputes) {
    const double share = recomputes == Recomputes::none ? 1 : recomputes == Recomputes::selective ? 0.33 : 0.1;
    return SearchQuestion::Activations{static_cast<size_t>(static_cast<double>(batch) * sample * share), 0};
  };
  return question;
}

Cluster hosts_of(const char* name, int hosts) {
  Cluster cluster = *find_cluster(name);
  cluster.hosts = hosts;
  return cluster;
}

TEST(Search, RanksWhatFitsTheFastestFirst) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  const SearchAnswer answer = search(question_on(subject, hosts_of("H100", 2), 16));
  ASSERT_GT(answer.candidates.size(), 10u);
  std::set<int> stages;
  std::set<std::string> shardings;
  for (size_t each = 0; each < answer.candidates.size(); ++each) {
    const Candidate& of = answer.candidates[each];
    if (each > 0) {
      EXPECT_LE(of.tokens(), answer.candidates[each - 1].tokens());
    }
    EXPECT_LE(of.device_nbytes, size_t{80} << 30);
    stages.insert(of.stage);
    shardings.insert(name_of(of.sharding));
    EXPECT_EQ(of.offload, "") << "all fits without";
  }
  EXPECT_TRUE(stages.contains(2) && stages.contains(3));
  EXPECT_TRUE(shardings.contains("all ranks") && shardings.contains("groups of 8") && shardings.contains("hpZ of 8"));
}

TEST(Search, OnASlowNetworkGroupsInsideHostsComeFirst) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  Cluster cluster = hosts_of("A100-80", 4);
  cluster.between = between_link("25", "");
  SearchQuestion question = question_on(subject, cluster, 32, 30e9);
  question.most_batch = 2;
  const SearchAnswer answer = search(question);
  ASSERT_FALSE(answer.candidates.empty());
  EXPECT_EQ(answer.candidates.front().sharding.kind, Sharding::Kind::group);
}

TEST(Search, SettingsAreJsonOfTheConfigFile) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  SearchQuestion question = question_on(subject, hosts_of("H100", 2), 16);
  question.global_batch = 64;
  for (const Candidate& of : search(question).candidates) {
    const json::Value settings = json::parse(of.settings, "settings");
    EXPECT_EQ(settings.find("train_micro_batch_size_per_gpu")->as_integer() * of.accumulation * 16, 64);
    EXPECT_EQ(settings.find("zero_optimization")->find("stage")->as_integer(), of.stage);
    EXPECT_EQ(settings.find("zero_optimization")->find("mics_shard_size") != nullptr,
              of.sharding.kind == Sharding::Kind::group);
    EXPECT_EQ(settings.find("shoal") != nullptr, of.ring_reduce);
    EXPECT_TRUE(settings.find("bf16")->find("enabled")->as_boolean());
  }
}

TEST(Search, ABatchThatDoesNotDivideIsLeftOutOrRefused) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  SearchQuestion question = question_on(subject, hosts_of("H100", 1), 8);
  question.global_batch = 24;
  for (const Candidate& of : search(question).candidates) EXPECT_EQ(of.batch, 1) << "2 x 8 ranks do not divide 24";
  question.global_batch = 20;
  EXPECT_THAT(message_of([&] { search(question); }),
              HasSubstr("[--global-batch] 20 samples cannot be dealt out to 8 ranks. Give a multiple of 8."));
}

TEST(Search, WhatDoesNotFitGoesToTheHostAndThenToTheDisk) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  Cluster cluster = hosts_of("4090", 1);
  cluster.gpus_per_host = 1;
  const SearchAnswer on_host = search(question_on(subject, cluster, 1));
  ASSERT_FALSE(on_host.candidates.empty());
  EXPECT_NE(on_host.candidates.front().offload, "");
  EXPECT_GT(on_host.candidates.front().host_nbytes, size_t{40} << 30);
  EXPECT_GT(on_host.candidates.front().forecast.time.offload, 0);
  cluster.host.memory = size_t{48} << 30;
  const SearchAnswer on_disk = search(question_on(subject, cluster, 1));
  ASSERT_FALSE(on_disk.candidates.empty());
  EXPECT_THAT(on_disk.candidates.front().settings, HasSubstr("nvme"));
  EXPECT_GT(on_disk.candidates.front().forecast.time.seconds, on_host.candidates.front().forecast.time.seconds);
  cluster.host.memory = size_t{1} << 30;
  const SearchAnswer nowhere = search(question_on(subject, cluster, 1));
  EXPECT_TRUE(nowhere.candidates.empty());
  EXPECT_GT(nowhere.least_device, 0u);
}

// The default bucket of 50M elements is smaller than a block of 202M.
TEST(Search, OffersABucketThatABlockFitsInto) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  SearchQuestion question = question_on(subject, hosts_of("H100", 2), 16);
  question.cluster.between = between_link("200", "");
  const SearchAnswer answer = search(question);
  const auto is = [](bool ahead) {
    return
        [ahead](const Candidate& of) { return of.sharding == Sharding{} && of.stage == 3 && of.block_ahead == ahead; };
  };
  const auto ahead = std::find_if(answer.candidates.begin(), answer.candidates.end(), is(true));
  const auto config = std::find_if(answer.candidates.begin(), answer.candidates.end(), is(false));
  ASSERT_TRUE(ahead != answer.candidates.end() && config != answer.candidates.end());
  EXPECT_GT(ahead->tokens(), 1.05 * config->tokens());
  EXPECT_LT(ahead->forecast.time.gathers, config->forecast.time.gathers);
  EXPECT_THAT(ahead->settings, HasSubstr("\"stage3_prefetch_bucket_size\": 203000000"));
  question.config.zero.prefetch_bucket_size = 1'000'000'000;
  for (const Candidate& of : search(question).candidates) EXPECT_FALSE(of.block_ahead) << "it fits as it is";
}

TEST(Search, OneGpuHasNobodyToShardWith) {
  const PlanSubject subject = testing::subject_of(llama_7b());
  Cluster cluster = hosts_of("H200", 1);
  cluster.gpus_per_host = 1;
  for (const Candidate& of : search(question_on(subject, cluster, 1)).candidates) {
    EXPECT_EQ(of.sharding, Sharding{});
    EXPECT_FALSE(of.ring_reduce);
  }
}

}  // namespace
}  // namespace shoal::forecast
