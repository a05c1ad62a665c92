// --no-decay and --layer-decay as parameter groups: whose weights decay, and how fast each layer learns.
#pragma once

#include <string>
#include <vector>

#include "shoal/config.h"
#include "shoal/unit.h"
#include "train/options.h"

namespace shoal::train {

struct GroupedUnits {
  std::vector<Unit> units;
  std::vector<ParamGroup> groups;  // the first is that of the head's matrices: the rate that steps print
};

// The first unit is the embedding, the last the head, and a layer each between them, as in every model here.
GroupedUnits group_params(std::vector<Unit> units, const TrainOptions& options, const Config& config);

// Throws shoal::Error where the flags are wrong, or the schedule gives every layer one rate.
void check_param_groups(const TrainOptions& options, const Config& config);

// A line where a run goes on with other flags than `run_json`, the run.json of its folder, names; "" where it does not,
// or there is no such file.
std::string param_group_change(const TrainOptions& options, const std::string& run_json);

// What the flags come to, for the user: a line each.
std::vector<std::string> param_group_lines(const std::vector<Unit>& units, const TrainOptions& options,
                                           const Config& config);

}  // namespace shoal::train
