// See engine_source.h.
#include "checkpoint/engine_source.h"

#include <fmt/format.h>

#include <cstdio>

#include "checkpoint/manifest.h"
#include "plan/from_config.h"

namespace shoal::checkpoint {

StateSource source_of(const Engine& engine) {
  StateSource source;
  source.params = engine.state().params();
  source.runs = engine.state().owned();
  source.read = [&engine](const StateRun& part, float* values) { engine.state().read(part, values); };
  source.progress = engine.state().progress();
  source.config = engine.config().to_json();
  source.kept = {moment_dtype(engine.config()), has_narrow_masters(engine.config())};
  return source;
}

SaveOptions with_accumulated(const Engine& engine, const Group& world, SaveOptions options) {
  options.extra.erase(std::string(kAccumulated));  // of the checkpoint that the run was taken up from
  const int64_t accumulated = engine.state().accumulated();
  if (accumulated == 0) return options;
  options.extra[std::string(kAccumulated)] = std::to_string(accumulated);
  if (world.rank() == 0) {
    fmt::print(stderr,
               "[checkpoint save] {} micro-steps are accumulated: the checkpoint is of the last step and does not hold "
               "them. They stay in memory, and training goes on with them.\n",
               accumulated);
  }
  return options;
}

}  // namespace shoal::checkpoint
