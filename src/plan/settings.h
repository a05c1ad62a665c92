// What to give `shoal train` for what was planned: keys for --set, or all of a config, and flags beside it. Pure; the
// command fills it in, plan_text.cpp prints it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace shoal {

struct PlanSettings {
  std::vector<std::string> overrides;  // "path=value", for --set over the config that was planned with
  std::vector<std::string> flags;      // that are no keys: "--recompute", "full"
  json::Value config;                  // that config with the overrides in it
};

// `written` is a config as its author gave it, `given` was laid over it in the plan, and `words` make it fit: as fit.h
// has them, "--set path=value --recompute full". Of what is said twice the last word counts.
PlanSettings settings_with(json::Value written, const std::vector<std::string>& given, const std::string& words);

// "--set a=1 --recompute full", to paste behind a command: quoted where a shell would take it for something else.
std::string command_words(const PlanSettings& settings);

}  // namespace shoal
