// From the user's units to what the layout understands: specs, owners of tied tensors, names. Checks the model, and
// that all ranks brought the same one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/param_spec.h"
#include "shoal/config.h"
#include "shoal/group.h"
#include "shoal/unit.h"

namespace shoal {

struct ParamAddress {
  int unit = 0;
  int param = 0;  // index within the unit's own parameters
};

struct Blueprint {
  std::vector<UnitSpec> specs;
  std::vector<std::vector<at::Tensor>> tensors;  // own parameters, as in specs
  std::vector<std::vector<std::shared_ptr<const ValueSource>>>
      sources;                                  // of their first values; null: the tensor's own
  std::map<std::string, ParamAddress> by_name;  // tied names too
};

Blueprint make_blueprint(const std::vector<Unit>& units, const Config& config, size_t group_count);

// How an engine of these units lays them out.
ModelLayout layout_of(const std::vector<Unit>& units, const Config& config, int world, size_t group_count = 1);

// Throws on every rank if the ranks have different models, configs or parameter groups, and says which rank differs in
// what.
void check_agreement(const Blueprint& blueprint, const Config& config, const std::vector<ParamGroup>& groups,
                     Group& channel);

}  // namespace shoal
