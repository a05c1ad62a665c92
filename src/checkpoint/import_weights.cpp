// See import_weights.h.
#include "checkpoint/import_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/save.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

// `latest` would name the new one, and the run that saved the others would go on from step 0.
void refuse_checkpoints_in(const std::string& path) {
  const std::string folder = checkpoints_in(path);
  const std::vector<std::string> names = steps_in(folder);
  if (names.empty()) return;
  throw Error("checkpoint import",
              fmt::format("{} holds {} already. Name a folder without checkpoints.", folder, names.back()));
}

}  // namespace

std::string import_weights(const std::vector<Unit>& units, const ImportOptions& options) {
  refuse_checkpoints_in(options.folder);
  StateSource source;
  source.weights_only = true;
  std::vector<std::shared_ptr<const ValueSource>> values;
  std::unordered_map<const void*, size_t> seen;  // tied parameters are one tensor
  for (const Unit& unit : units) {
    for (const Parameter& param : unit.params) {
      const auto [found, is_new] = seen.emplace(param.tensor.unsafeGetTensorImpl(), source.params.size());
      if (!is_new) {
        source.params[found->second].aliases.push_back(param.name);
        continue;
      }
      if (!param.source) throw Error("checkpoint import", fmt::format("{} has no source of values.", param.name));
      const int index = static_cast<int>(source.params.size());
      source.params.push_back(
          {param.name, {}, param.tensor.sizes().vec(), unit.name, DType::f32, param.tensor.requires_grad()});
      source.runs.push_back({index, StateKind::weight, 0, param.tensor.numel()});
      values.push_back(param.source);
    }
  }
  for (ParamInfo& param : source.params) std::sort(param.aliases.begin(), param.aliases.end());
  source.read = [&values](const StateRun& part, float* out) { values[part.param]->read(part.begin, part.numel, out); };
  SaveOptions saving;
  saving.folder = options.folder;
  if (!options.model_config.empty()) saving.extra["model_config"] = options.model_config;
  return save_state(source, *make_single_group(), saving);
}

}  // namespace shoal::checkpoint
