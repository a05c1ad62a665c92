// The part of `shoal plan` that asks how long a step takes: its flags, and what is printed. The forecast is in
// src/forecast/.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "forecast/cluster.h"
#include "models/language_model.h"
#include "plan/plan_text.h"

namespace shoal::cli {

struct TimeOptions {
  bool time = false, search = false;
  std::string cluster, network, inside;
  int hosts = 0, gpus_per_host = 0;
  int64_t global_batch = 0, most_batch = 64;
  int most = 10;

  bool asked() const { return time || search; }
};

void add_time(CLI::App& verb, TimeOptions& options);

// As the flags have it; nothing where they name none. `world`: as --world says, 0: it was not given. Throws
// shoal::Error where flags do not go together.
std::optional<forecast::Cluster> cluster_of(const TimeOptions& options, int world);
// All GPUs of the cluster, or `world` of them.
int ranks_of(const TimeOptions& options, const forecast::Cluster& cluster, int world);

struct TimeQuestion {
  const PlanReport& report;
  const models::LanguageModel* model;
  models::MicroStep step;
  forecast::Cluster cluster;
  json::Value written;  // the config, as a file has it
  std::string flags;    // given beside it, for settings to paste
  bool json = false;
};
// The plan's text, or JSON, with the time of the config's step.
std::string with_time(const std::string& plan, const TimeQuestion& question);
// Prints what the search found; whether anything fits.
bool print_search(const TimeOptions& options, const TimeQuestion& question);

}  // namespace shoal::cli
