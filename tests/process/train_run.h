// Runs of `shoal train` on models that train in a blink, for tests: folders with a config.json, the command, and
// columns of metrics.jsonl as the characters that stand there.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "process/command.h"
#include "temp_folder.h"

namespace shoal::testing {

// A folder with models in it.
class RunFolder : public TempFolder {
 public:
  RunFolder() {
    write("llama/config.json", llama_config(256));
    write("gpt2/config.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 32,
      "n_layer": 2, "n_head": 4, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})");
    write("mixture/config.json", R"({"model_type": "qwen2_moe", "vocab_size": 256, "max_position_embeddings": 64,
      "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_experts": 24, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
      "shared_expert_intermediate_size": 32, "output_router_logits": true, "router_aux_loss_coef": 0.1})");
  }

  static std::string llama_config(int vocab) {
    return R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
      "vocab_size": )" +
           std::to_string(vocab) + "}";
  }
};

// The command of this build; in a pack on another machine, the one that SHOAL_COMMAND names.
inline std::string shoal_command() {
  const char* packed = std::getenv("SHOAL_COMMAND");
  return packed != nullptr ? packed : SHOAL_BINARY;
}

// `shoal train` with these words after the ones that every test needs. An epoch has 36 samples, four and a half
// global batches of 8.
inline std::vector<std::string> train_words(const RunFolder& folder, const std::string& model, const std::string& out,
                                            const std::vector<std::string>& more) {
  std::vector<std::string> words = {shoal_command(), "train",
                                    "--model",       folder / model,
                                    "--data",        "synthetic:tokens=1450",
                                    "--sequence",    "32",
                                    "--validation",  "0.2",
                                    "--threads",     "1",
                                    "--log-every",   "1",
                                    "--set",         "train_batch_size=8",
                                    "--lr",          "0.01",
                                    "--out",         folder / out};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Result train(const RunFolder& folder, const std::string& model, const std::string& out, const Words& more) {
  return Command(train_words(folder, model, out, more)).wait();
}

// The values of one key in a file of JSON lines, as written: "5.430791378021240".
inline std::vector<std::string> column(const std::string& lines, const std::string& key) {
  std::vector<std::string> values;
  std::stringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const size_t at = line.find("\"" + key + "\": ");
    if (at == std::string::npos) {
      values.push_back("no " + key);
      continue;
    }
    const size_t begin = at + key.size() + 4;
    values.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
  }
  return values;
}

inline std::vector<double> numbers(const std::vector<std::string>& texts) {
  std::vector<double> values;
  for (const std::string& text : texts) values.push_back(std::strtod(text.c_str(), nullptr));
  return values;
}

// Milliseconds of the waits in a run's trace, by what was waited for.
inline std::map<std::string, double> traced_waits(const RunFolder& folder, const std::string& run) {
  std::map<std::string, double> waits;
  const json::Value trace = json::parse(folder.read(run + "/trace.json"), "trace.json");
  for (const json::Value& event : trace.find("traceEvents")->as_array()) {
    const json::Value* category = event.find("cat");
    if (category == nullptr || category->as_text() != "wait") continue;
    waits[event.find("name")->as_text()] += event.find("dur")->as_number() * 1e-3;
  }
  return waits;
}

// Two runs wrote the same numbers, all but the times.
inline void expect_same_characters(const RunFolder& folder, const std::string& run, const std::string& whole) {
  const std::string metrics = folder.read(run + "/metrics.jsonl"), expected = folder.read(whole + "/metrics.jsonl");
  for (const char* key : {"step", "loss", "grad_norm", "lr", "loss_scale", "skipped", "tokens"}) {
    EXPECT_EQ(column(metrics, key), column(expected, key)) << run << " " << key;
  }
}

}  // namespace shoal::testing
