// What `shoal plan` prints: a table for people, JSON for programs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/fit.h"
#include "plan/settings.h"
#include "plan/stage_plans.h"
#include "shoal/config.h"

namespace shoal {

struct PlanReport {
  PlanSubject subject;
  Config config;
  int world = 1;
  Budget budget;
  std::string workload = {};                  // "micro-batch 1 x 2048 tokens"; empty when activations are not counted
  std::vector<std::string> notes = {};        // what was decided and not by the user
  std::optional<PlanSettings> settings = {};  // of what fits, where anything does
};

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace shoal
