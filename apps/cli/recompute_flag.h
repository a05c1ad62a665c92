// The flag --recompute, which `shoal train` and `shoal plan` share.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "models/open_model.h"

namespace shoal::cli {

inline void add_recompute(CLI::App& verb, std::string& name) {
  verb.add_option("--recompute", name,
                  "what is not kept for backward but computed again: selective, the outputs of norms and activation "
                  "functions; full, all but each block's input; auto, as little as the memory allows, block by block")
      ->check(CLI::IsMember(std::vector<std::string>(models::kRecomputeNames.begin(), models::kRecomputeNames.end())))
      ->capture_default_str();
}

// Of one that the flag has taken.
inline models::Recompute recompute_named(const std::string& name) {
  const auto& names = models::kRecomputeNames;
  return static_cast<models::Recompute>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace shoal::cli
