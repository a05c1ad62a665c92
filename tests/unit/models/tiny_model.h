// Models small enough for a test: config.json texts, a folder that holds one, and an engine of one rank around it.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "models/open_model.h"
#include "temp_folder.h"

namespace shoal::testing {

inline constexpr int64_t kTinyVocab = 29;

// `more` is laid over the keys before it, as in JSON with a leading comma: R"(, "tie_word_embeddings": true)".
inline std::string tiny_llama_json(const std::string& more = "") {
  return R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 12, "intermediate_size": 20,)"
         R"( "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16)" +
         more + "}";
}
inline std::string tiny_gpt2_json(const std::string& more = "") {
  return R"({"model_type": "gpt2", "vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 16)" +
         more + "}";
}
inline const std::string kNoDropout = R"(, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0)";

inline std::unique_ptr<models::LanguageModel> open_json(const std::string& config,
                                                        const models::OpenOptions& options = {}) {
  TempFolder folder;
  put_file(folder / "config.json", config);
  return models::open_model(folder.path(), options);
}

struct TinyRun {
  std::string config_json;
  models::OpenOptions open = {};
  std::string precision = "fp32";  // or "bf16"
  int stage = 3;
  uint64_t seed = 0;  // of the engine
};

// A model and its engine on one rank of a world.
struct TinyTraining {
  TinyTraining(const TinyRun& run, Group& group)
      : model(open_json(run.config_json, run.open)),
        engine(model->units(), config_of(run, group.size()), group, {.seed = run.seed}) {}

  static Config config_of(const TinyRun& run, int world) {
    const std::string precision = run.precision == "bf16" ? R"("bf16": {"enabled": true}, )" : "";
    return Config::from_text(R"({"train_micro_batch_size_per_gpu": 2, )" + precision +
                                 R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": )"
                                 R"({"stage": )" +
                                 std::to_string(run.stage) + R"(, "stage3_param_persistence_threshold": 0}})",
                             {.world_size = world});
  }
  static at::Tensor tokens(int64_t step, int64_t time = 9) {
    at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    return at::randint(0, kTinyVocab, {2, time}, random, at::kLong);
  }

  double train_step(int64_t step) {
    const at::Tensor loss = model->loss(engine, tokens(2 * step), tokens(2 * step + 1));
    engine.backward(loss);
    engine.step();
    return loss.item<double>();
  }
  std::vector<double> train(int steps) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) losses.push_back(train_step(step));
    return losses;
  }
  double evaluate(int64_t step) {
    double loss = 0;
    engine.evaluate([&] { loss = model->loss(engine, tokens(2 * step), tokens(2 * step + 1)).item<double>(); });
    return loss;
  }
  at::Tensor logits(const at::Tensor& of) {
    at::Tensor logits;
    engine.evaluate([&] { logits = model->logits(engine, of); });
    return logits;
  }

  std::unique_ptr<models::LanguageModel> model;
  Engine engine;
};

}  // namespace shoal::testing
