// What a family of models tells open_model about itself. Adding one: docs/adding_a_model.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/open_model.h"
#include "models/parameter_list.h"

namespace shoal::models {

struct OpenRequest {
  std::string name;  // as the user gave it
  HfConfig config;
  WeightsOrigin weights;
  Recompute recompute = Recompute::none;
  bool byte_tokens = false;
  std::optional<LoraSpec> lora = std::nullopt;
};

// How config.json names a kind of model that the family can be.
struct ModelType {
  std::string model_type;         // "llama"
  std::string architecture;       // "LlamaForCausalLM"
  std::string base_architecture;  // "LlamaModel": the same without a head
};

struct Family {
  std::string name;
  std::vector<ModelType> types;
  std::unique_ptr<LanguageModel> (*open)(const OpenRequest& request);
};

}  // namespace shoal::models
