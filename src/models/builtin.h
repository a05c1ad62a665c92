// The models that have a name here: each is a config.json, read by its family like any other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace shoal::models {

struct Builtin {
  std::string name;
  json::Value config;        // as config.json has it
  bool byte_tokens = false;  // its vocabulary is the 256 bytes
};

const std::vector<Builtin>& builtins();
// nullptr: there is none of this name.
const Builtin* find_builtin(const std::string& name);

}  // namespace shoal::models
