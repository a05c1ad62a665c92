// From what a user writes after --model to a model: a built-in name, or a folder with a Hugging Face config.json and
// (or without) safetensors. Of a name that is both, the folder; builtin:NAME is the built-in one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/language_model.h"
#include "models/lora.h"
#include "models/recompute.h"

namespace shoal::models {

// Before a built-in name, where a folder of the name may be meant.
inline constexpr std::string_view kBuiltinPrefix = "builtin:";

struct OpenOptions {
  uint64_t seed = 0;  // of initial weights, where no file gives them
  Recompute recompute = Recompute::none;
  std::optional<LoraSpec> lora = std::nullopt;  // freeze the model and train adapters
  // Of mixtures of experts: what the auxiliary loss counts, 0: nothing; left out: as config.json says.
  std::optional<double> router_aux_loss = {};
};

// Throws an Error that names what is wrong: unknown architecture, missing or extra tensors, wrong shapes, a truncated
// file. Touches no tensor data yet.
std::unique_ptr<LanguageModel> open_model(const std::string& name_or_path, const OpenOptions& options = {});

// What to tell the user where a name is a folder's and a built-in one's: which of them is taken. "": it is not both.
std::string name_clash(const std::string& name_or_path);

// The folder that a name, a path or that of a config.json in it means; "" for a built-in model.
std::string model_folder(const std::string& name_or_path);

// The model of a config.json that stands nowhere but here, as checkpoints carry it: its weights start from the seed.
// `name` is for messages.
std::unique_ptr<LanguageModel> open_model_of_config(const std::string& config_json, const std::string& name,
                                                    const OpenOptions& options = {});

// "llama-tiny", "llama-33m", "gpt2", ...
std::vector<std::string> builtin_models();

}  // namespace shoal::models
