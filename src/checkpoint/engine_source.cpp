// See engine_source.h.
#include "checkpoint/engine_source.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "plan/from_config.h"

namespace shoal::checkpoint {

namespace {

// The same without parameters that are not trained.
StateSource trained_part(StateSource whole) {
  StateSource part = std::move(whole);
  const std::vector<ParamInfo> params = std::exchange(part.params, {});
  std::vector<int> number(params.size(), -1), before;  // of the part's parameters: in the part, and in the whole
  for (size_t param = 0; param < params.size(); ++param) {
    if (!params[param].trainable) continue;
    number[param] = static_cast<int>(part.params.size());
    part.params.push_back(params[param]);
    before.push_back(static_cast<int>(param));
  }
  std::vector<StateRun> runs;
  for (StateRun run : part.runs) {
    run.param = number[static_cast<size_t>(run.param)];
    if (run.param >= 0) runs.push_back(run);
  }
  part.runs = std::move(runs);
  part.read = [read = std::move(part.read), before = std::move(before)](StateRun run, float* values) {
    run.param = before[static_cast<size_t>(run.param)];
    read(run, values);
  };
  return part;
}

}  // namespace

StateSource source_of(const Engine& engine, const SaveOptions& options) {
  StateSource source;
  source.params = engine.state().params();
  source.runs = engine.state().owned();
  source.read = [&engine](const StateRun& part, float* values) { engine.state().read(part, values); };
  source.progress = engine.state().progress();
  source.config = engine.config().to_json();
  source.kept = {moment_dtype(engine.config()), has_narrow_masters(engine.config())};
  return options.trained_only ? trained_part(std::move(source)) : source;
}

SaveOptions with_what_is_left_out(const Engine& engine, const Group& world, SaveOptions options) {
  options.extra.erase(std::string(kFrozenParameters));
  if (options.trained_only) options.extra[std::string(kFrozenParameters)] = "left out";
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
