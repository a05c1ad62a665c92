// What a checkpoint of `shoal train --lora` says beside its adapters, as texts of its `extra`: what was trained, and on
// which base, so that the base can be found again and no other is taken for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "models/language_model.h"
#include "models/lora.h"
#include "shoal/group.h"

namespace shoal::models {

struct LoraBase {
  LoraSpec spec;
  std::string model;   // what to open: the absolute path of a folder, or builtin:NAME
  uint64_t seed = 0;   // of the weights, where the model comes without any, and of the adapters
  std::string digest;  // of the frozen weights: base_digest.h
};

using Extra = std::map<std::string, std::string>;

void put_lora(const LoraBase& base, Extra& extra);
// Nothing: the checkpoint is of a run that trained the whole model. `place` is for messages.
std::optional<LoraBase> find_lora(const Extra& extra, const std::string& place);

// As `name_or_path` is found again from anywhere on this machine.
std::string lasting_name(const std::string& name_or_path);

// What to say where a model, `name`, has other frozen weights, of this digest.
std::string other_base(const LoraBase& base, const std::string& name, const std::string& digest);
// Throws Error where the weights of the model, `opened`, are not those that the adapters were trained on. Every rank
// calls it.
void check_base(const LoraBase& base, const LanguageModel& opened, const std::string& place, Group& world);

// The base with its adapters, whose first values stand in no checkpoint. `elsewhere`: where the base is now; "": where
// it was.
std::unique_ptr<LanguageModel> open_lora_model(const LoraBase& base, const std::string& elsewhere,
                                               const std::string& place);

}  // namespace shoal::models
