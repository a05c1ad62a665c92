// See run_config.h.
#include "train/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

// "auto" scales the thresholds with the model: DeepSpeed's own keep a small model whole on every rank.
constexpr const char* kNoConfig = R"({"zero_optimization": {
  "stage": 3, "stage3_param_persistence_threshold": "auto", "stage3_prefetch_bucket_size": "auto"
}})";

std::string read_config(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad()) throw Error("config " + path, "the file cannot be read. Give the path of a JSON file.");
  return text.str();
}

// The value at a path of keys as the file gives it, or null.
json::Value given(const json::Value& root, const std::vector<std::string>& path) {
  const json::Value* value = &root;
  for (const std::string& key : path) {
    value = value->is_object() ? value->find(key) : nullptr;
    if (value == nullptr) return {};
  }
  return *value;
}

bool overrides_touch(const std::vector<std::string>& overrides, const std::string& section) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const std::string& override) {
    return override.rfind(section + ".", 0) == 0 || override.rfind(section + "=", 0) == 0;
  });
}

}  // namespace

RunConfig make_run_config(const TrainOptions& options, int world, int64_t hidden_size) {
  const bool has_file = !options.config_path.empty();
  const std::string origin = has_file ? "config " + options.config_path : "config";
  const std::string text = has_file ? read_config(options.config_path) : kNoConfig;
  std::vector<json::Duplicate> duplicates;  // Config::from_text complains about them
  const json::Value root = json::parse(text, origin, &duplicates);

  RunConfig run;
  if (!has_file)
    run.choices.push_back(
        "no --config: stage 3 in fp32, thresholds by the size of the model, everything else by default");
  std::vector<std::string> overrides;
  if (given(root, {"optimizer"}).is_null() && !overrides_touch(options.overrides, "optimizer")) {
    overrides.push_back("optimizer.type=AdamW");
    overrides.push_back(fmt::format("optimizer.params.lr={}", options.lr.value_or(kDefaultLr)));
    run.choices.push_back(
        fmt::format("no optimizer in the config: AdamW with learning rate {}", options.lr.value_or(kDefaultLr)));
  } else if (options.lr) {
    overrides.push_back(fmt::format("optimizer.params.lr={}", *options.lr));
  }
  if (options.lr && given(root, {"scheduler", "params", "warmup_max_lr"}).is_number()) {
    overrides.push_back(fmt::format("scheduler.params.warmup_max_lr={}", *options.lr));
  }
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());

  ConfigContext context;
  context.world_size = world;
  context.hidden_size = hidden_size;
  context.micro_batch_size = kDefaultMicroBatch;
  context.lr = options.lr.value_or(kDefaultLr);
  context.total_steps = options.steps;
  run.config = Config::from_text(text, context, origin, overrides);
  if (given(root, {"train_batch_size"}).is_null() && given(root, {"train_micro_batch_size_per_gpu"}).is_null() &&
      !overrides_touch(options.overrides, "train_batch_size") &&
      !overrides_touch(options.overrides, "train_micro_batch_size_per_gpu")) {
    run.choices.push_back(fmt::format("no batch in the config: {} samples a rank and micro-step", kDefaultMicroBatch));
  }
  return run;
}

}  // namespace shoal::train
