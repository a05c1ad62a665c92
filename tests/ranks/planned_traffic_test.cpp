// What the plan says a step moves is what the ranks of a language model then send: the rest is a few numbers for the
// norm.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "engine/blueprint.h"
#include "models/open_model.h"
#include "plan/from_config.h"
#include "plan/traffic.h"
#include "temp_folder.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

constexpr const char* kInt8Weights = "zero_optimization.zero_quantized_weights=true";
constexpr const char* kFewBitGradients = "zero_optimization.zero_quantized_gradients=true";

struct Case {
  int stage = 0;
  int world = 2;
  bool tied = false;
  bool bf16 = false;
  int64_t accumulation = 1;
  std::vector<std::string> settings = {};
  std::vector<int> hosts = {};
};

Config config_of(const Case& c) {
  std::vector<std::string> settings = {"zero_optimization.stage=" + std::to_string(c.stage),
                                       std::string("bf16.enabled=") + (c.bf16 ? "true" : "false"),
                                       "gradient_accumulation_steps=" + std::to_string(c.accumulation)};
  settings.insert(settings.end(), c.settings.begin(), c.settings.end());
  const Config config = Config::from_text(
      R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
                               "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 3000}})",
      {.world_size = c.world}, "config", settings);
  return with_hosts(config, c.hosts);
}

// By rank.
std::vector<Traffic> sent_in_one_step(const Case& c, const std::string& folder) {
  const auto play = [&](Group& group) {
    at::set_num_threads(1);
    const auto model = models::open_model(folder);
    Engine engine(model->units(), config_of(c), group, {.broadcast_weights = false});
    const at::Tensor tokens = at::empty({1, 8}, at::kLong).fill_(3);
    Traffic before;
    for (int step = 0; step < 3; ++step) {
      before = engine.meters().traffic();
      for (int64_t i = 0; i < c.accumulation; ++i) {
        engine.backward(model->loss(engine, tokens, tokens));
        engine.step();
      }
    }
    Traffic sent = engine.meters().traffic();
    sent.sent_nbytes -= before.sent_nbytes;
    sent.sent_between_hosts -= before.sent_between_hosts;
    sent.received_between_hosts -= before.received_between_hosts;
    return sent;
  };
  return on_threads<Traffic>(c.world, play, std::chrono::seconds(60), c.hosts);
}

std::vector<Case> hybrid_cases() {
  const std::vector<int> two_by_two = {0, 0, 1, 1}, two_by_three = {0, 0, 0, 1, 1, 1},
                         three_by_two = {0, 0, 1, 1, 2, 2};
  const auto mics = [](int ranks) { return "zero_optimization.mics_shard_size=" + std::to_string(ranks); };
  const auto second = [](int ranks) { return "zero_optimization.zero_hpz_partition_size=" + std::to_string(ranks); };
  return {{3, 4, false, true, 1, {}, two_by_two},
          {3, 4, false, true, 1, {mics(2)}, two_by_two},
          {3, 4, true, false, 2, {mics(2)}, two_by_two},
          {3, 6, false, true, 2, {mics(3)}, two_by_three},
          {3, 6, false, true, 2, {mics(3), "shoal.fold_group=3"}, two_by_three},
          {3, 4, false, true, 1, {"shoal.shard_size=host"}, two_by_two},
          {2, 4, false, true, 2, {mics(2)}, two_by_two},
          {1, 4, false, true, 2, {mics(2)}, two_by_two},
          {3, 4, false, true, 1, {second(2)}, two_by_two},
          {3, 6, true, true, 3, {second(3)}, two_by_three},
          {3, 6, false, true, 1, {mics(6), "zero_optimization.mics_hierarchical_params_gather=true"}, three_by_two},
          {3, 4, false, true, 1, {mics(1)}, two_by_two},
          {3, 4, false, true, 2, {kInt8Weights}, two_by_two},
          {3, 6, true, true, 1, {kInt8Weights, second(3)}, two_by_three},
          {3, 4, false, false, 1, {kInt8Weights, mics(2)}, two_by_two},
          {3,
           6,
           false,
           true,
           1,
           {kInt8Weights, mics(6), "zero_optimization.mics_hierarchical_params_gather=true"},
           three_by_two},
          {3, 4, false, true, 2, {kFewBitGradients}, two_by_two},
          {2, 6, true, false, 2, {kFewBitGradients, "shoal.quantized_gradient_bits=8"}, two_by_three},
          {3, 6, false, true, 2, {kFewBitGradients, mics(2)}, three_by_two},
          {3, 4, false, true, 1, {kInt8Weights, kFewBitGradients, second(2)}, two_by_two},
          {3,
           4,
           false,
           true,
           2,
           {kInt8Weights, kFewBitGradients, second(2), "zero_optimization.zeropp_loco_param.err_beta=0.8"},
           two_by_two}};
}

TEST(PlannedTraffic, IsWhatALanguageModelSends) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("shoal-traffic-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const bool tied : {false, true}) {
    std::ofstream(folder / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
               "vocab_size": 64, "tie_word_embeddings": )"
        << (tied ? "true" : "false") << "}";
    for (const Case& c : {Case{0, 2}, Case{1, 3}, Case{2, 2, false, true}, Case{3, 2}, Case{3, 3},
                          Case{3, 2, false, true}, Case{3, 2, false, false, 2}, Case{1, 2, false, true, 2}}) {
      const Config config = config_of(c);
      const ModelLayout layout = layout_of(models::open_model(folder)->units(), config, c.world);
      const StepTraffic plan = plan_traffic(layout, config);
      const uint64_t sent = sent_in_one_step(c, folder)[0].sent_nbytes;
      const uint64_t planned = plan.total() + plan.norm;
      EXPECT_GE(sent, planned) << "stage " << c.stage << " world " << c.world << " tied " << tied;
      EXPECT_LE(sent, planned + 512) << "stage " << c.stage << " world " << c.world << " tied " << tied;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(PlannedTraffic, IsByLinkWhatAMeshOfHostsSendsToTheByte) {
  const TempFolder folder;
  for (const Case& c : hybrid_cases()) {
    std::ofstream(folder.path() + "/config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
               "vocab_size": 64, "tie_word_embeddings": )"
        << (c.tied ? "true" : "false") << "}";
    const Config config = config_of(c);
    const ModelLayout layout = layout_of(models::open_model(folder.path())->units(), config, c.world);
    const std::vector<Traffic> sent = sent_in_one_step(c, folder.path());
    for (int rank = 0; rank < c.world; ++rank) {
      SCOPED_TRACE(fmt::format("stage {}, {} ranks, {}, rank {}", c.stage, c.world, join(c.settings, " "), rank));
      const StepTraffic plan = plan_traffic(layout, config, rank);
      EXPECT_EQ(sent[static_cast<size_t>(rank)].sent_nbytes, plan.total() + plan.norm);
      EXPECT_EQ(sent[static_cast<size_t>(rank)].sent_between_hosts, plan.between_hosts + plan.norm_between_hosts);
      EXPECT_GT(plan.between_hosts, 0u);
      EXPECT_GT(plan.inside_hosts(), 0u);
    }
  }
}

// What crosses between hosts, against full sharding of the same model on the same hosts: 2 hosts of 2 ranks, bf16.
TEST(PlannedTraffic, BetweenHostsFollowsTheFormulas) {
  const auto plan = [](const std::vector<std::string>& settings) {
    const Case c{3, 4, false, true, 1, settings, {0, 0, 1, 1}};
    Config config = config_of(c);
    config.zero.param_persistence_threshold = 0;
    const ModelLayout layout = lay_out(
        {{"a", {{"w", {4096}, DType::bf16}}, {}}, {"b", {{"v", {8192}, DType::bf16}}, {}}}, layout_options(config, 4));
    return plan_traffic(layout, config);
  };
  constexpr uint64_t kPart = (4096 + 8192) / 4 * 2;  // bytes of a part over the world
  EXPECT_EQ(plan({}).between_hosts, 3 * 2 * kPart);  // forward, backward, gradients: 2 ranks are on the other host
  // The leaves, and the sum, of which each rank has a part, to the replica.
  EXPECT_EQ(plan({"zero_optimization.mics_shard_size=2"}).between_hosts, 2 * kPart + kPart);
  // Gathered once, each part to one rank of the other host.
  const std::string second = "zero_optimization.zero_hpz_partition_size=2";
  EXPECT_EQ(plan({second}).between_hosts, kPart + 2 * kPart);
  // 132 bytes for 128 elements of int8, 68 for 128 of int4, scales among them; in bf16 they have 256.
  constexpr uint64_t kInt8 = kPart * 132 / 256, kInt4 = kPart * 68 / 256;
  EXPECT_EQ(plan({kInt8Weights}).between_hosts, 2 * 2 * kInt8 + 2 * kPart);
  EXPECT_EQ(plan({kInt8Weights, second}).between_hosts, kInt8 + 2 * kPart);
  EXPECT_EQ(plan({kFewBitGradients}).between_hosts, 2 * kPart + kInt4);  // and two gathers, host by host
  EXPECT_EQ(plan({kFewBitGradients, second}).between_hosts, kPart + kInt4);
  EXPECT_EQ(plan({kFewBitGradients, "shoal.quantized_gradient_bits=8", second}).between_hosts, kPart + kInt8);
  EXPECT_EQ(plan({kInt8Weights, kFewBitGradients, second}).between_hosts, kInt8 + kInt4);
}

// Of what stage 3 sends between hosts, at any number of hosts and of ranks on each.
TEST(PlannedTraffic, SecondCopiesSendAtMostTwoThirdsBetweenHostsAndAllOfZeroPlusPlusAtMost27Hundredths) {
  for (const auto& [hosts, in_host] : {std::pair{2, 2}, {2, 4}, {2, 8}, {4, 2}, {4, 4}, {3, 3}, {8, 8}}) {
    const int world = hosts * in_host;
    std::vector<int> places;
    for (int rank = 0; rank < world; ++rank) places.push_back(rank / in_host);
    const auto between_hosts = [&](const std::vector<std::string>& settings) {
      Config config = config_of({3, world, false, true, 1, settings, places});
      config.zero.param_persistence_threshold = 0;
      const ModelLayout layout = lay_out({{"a", {{"w", {int64_t{128} * world * 3}, DType::bf16}}, {}},
                                          {"b", {{"v", {int64_t{128} * world * 5}, DType::bf16}}, {}}},
                                         layout_options(config, world));
      return static_cast<double>(plan_traffic(layout, config, world - 1).between_hosts);
    };
    SCOPED_TRACE(fmt::format("{} hosts of {}", hosts, in_host));
    const std::string second = fmt::format("zero_optimization.zero_hpz_partition_size={}", in_host);
    const double stage3 = between_hosts({}), ranks = in_host;
    EXPECT_DOUBLE_EQ(between_hosts({second}) / stage3, (1 + ranks) / (3 * ranks));
    EXPECT_LE(between_hosts({second}) / stage3, 2.0 / 3);
    const double all = between_hosts({second, kInt8Weights, kFewBitGradients});
    EXPECT_DOUBLE_EQ(all / stage3, (132 + 68) / (3 * ranks * 256));
    EXPECT_LE(all / stage3, 0.27);
  }
}

}  // namespace
}  // namespace shoal::testing
