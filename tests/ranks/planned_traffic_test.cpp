// What the plan says a step moves is what the ranks of a language model then send: the rest is a few numbers for the
// norm.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/blueprint.h"
#include "models/open_model.h"
#include "plan/from_config.h"
#include "plan/traffic.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

struct Case {
  int stage = 0;
  int world = 2;
  bool tied = false;
  bool bf16 = false;
  int64_t accumulation = 1;
};

Config config_of(const Case& c) {
  return Config::from_text(
      R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
                               "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 3000}})",
      {.world_size = c.world}, "config",
      {"zero_optimization.stage=" + std::to_string(c.stage), std::string("bf16.enabled=") + (c.bf16 ? "true" : "false"),
       "gradient_accumulation_steps=" + std::to_string(c.accumulation)});
}

uint64_t sent_in_one_step(const Case& c, const std::string& folder) {
  const std::vector<uint64_t> sent = on_threads<uint64_t>(c.world, [&](Group& group) {
    at::set_num_threads(1);
    const auto model = models::open_model(folder);
    Engine engine(model->units(), config_of(c), group, {.broadcast_weights = false});
    const at::Tensor tokens = at::empty({1, 8}, at::kLong).fill_(3);
    uint64_t before = 0;
    for (int step = 0; step < 3; ++step) {
      before = engine.meters().traffic().sent_nbytes;
      for (int64_t i = 0; i < c.accumulation; ++i) {
        engine.backward(model->loss(engine, tokens, tokens));
        engine.step();
      }
    }
    return engine.meters().traffic().sent_nbytes - before;
  });
  return sent.front();
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
      const StepTraffic plan = plan_traffic(layout, gradient_options(config), gather_limits(config));
      const uint64_t sent = sent_in_one_step(c, folder);
      EXPECT_GE(sent, plan.total()) << "stage " << c.stage << " world " << c.world << " tied " << tied;
      EXPECT_LE(sent, plan.total() + 2048) << "stage " << c.stage << " world " << c.world << " tied " << tied;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace shoal::testing
