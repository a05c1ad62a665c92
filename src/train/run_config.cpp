// See run_config.h.
#include "train/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/json.h"
#include "base/regular_file.h"
#include "shoal/error.h"
#include "train/same_bits.h"

namespace shoal::train {

namespace {

// "auto" scales the thresholds with the model: DeepSpeed's own keep a small model whole on every rank.
constexpr const char* kNoConfig = R"({"zero_optimization": {
  "stage": 3, "stage3_param_persistence_threshold": "auto", "stage3_prefetch_bucket_size": "auto"
}})";

std::string read_config(const std::string& path) {
  return read_regular(path, "config " + path, "Give the path of a JSON file.");
}

std::string text_of(const TrainOptions& options) {
  return options.config_path.empty() ? kNoConfig : read_config(options.config_path);
}

std::string origin_of(const TrainOptions& options) {
  return options.config_path.empty() ? "config" : "config " + options.config_path;
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

// Whether one of the overrides sets exactly this key.
bool is_set(const std::vector<std::string>& overrides, const std::string& key) {
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& override) { return override.rfind(key + "=", 0) == 0; });
}

// --lr: the optimizer's rate, and the top of a warm-up. Schedules that have rates of their own contradict it.
void take_lr(double lr, const json::Value& root, const std::vector<std::string>& given_overrides,
             std::vector<std::string>& overrides) {
  if (!(lr > 0)) throw Error("--lr", fmt::format("{} is not a learning rate. Give a number above 0.", lr));
  const json::Value schedule = given(root, {"scheduler", "type"});
  for (const char* own : {"OneCycle", "LRRangeTest"}) {
    const bool named = (schedule.is_text() && schedule.as_text() == own) ||
                       std::find(given_overrides.begin(), given_overrides.end(),
                                 std::string("scheduler.type=") + own) != given_overrides.end();
    if (named) {
      throw Error("--lr", fmt::format("the schedule {} has learning rates of its own. Set its keys: --set "
                                      "scheduler.params....",
                                      own));
    }
  }
  overrides.push_back(fmt::format("optimizer.params.lr={}", lr));
  if (given(root, {"scheduler", "params", "warmup_max_lr"}).is_number()) {
    overrides.push_back(fmt::format("scheduler.params.warmup_max_lr={}", lr));
  }
}

// Numbers of ranks at which `config_at` has the leaves of this config. One that it throws at has none.
std::vector<int> worlds_of_same_leaves(const Config& own, const std::function<Config(int world)>& config_at) {
  std::vector<int> worlds;
  for (const int world : divisors_of(own.batch.train_batch_size / own.batch.micro_batch_size)) {
    try {
      const BatchConfig other = config_at(world).batch;
      const bool same =
          other.train_batch_size == own.batch.train_batch_size && other.micro_batch_size == own.batch.micro_batch_size;
      if (same) worlds.push_back(world);
    } catch (const Error&) {
      continue;
    }
  }
  return worlds;
}

bool overrides_touch(const std::vector<std::string>& overrides, const std::string& section) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const std::string& override) {
    return override.rfind(section + ".", 0) == 0 || override.rfind(section + "=", 0) == 0;
  });
}

}  // namespace

json::Value read_run_config(const TrainOptions& options) {
  return json::parse(text_of(options), origin_of(options), nullptr, json::Syntax::hjson);
}

RunConfig make_run_config(const TrainOptions& options, int world, int64_t hidden_size) {
  const bool has_file = !options.config_path.empty();
  const std::string origin = origin_of(options), text = text_of(options);
  std::vector<json::Duplicate> duplicates;  // Config::from_text complains about them
  const json::Value root = json::parse(text, origin, &duplicates, json::Syntax::hjson);

  RunConfig run;
  std::vector<std::string> overrides;
  const bool no_type = given(root, {"optimizer", "type"}).is_null() && !is_set(options.overrides, "optimizer.type");
  const bool no_lr =
      given(root, {"optimizer", "params", "lr"}).is_null() && !is_set(options.overrides, "optimizer.params.lr");
  if (no_type && !is_set(options.overrides, "optimizer")) {
    overrides.push_back("optimizer.type=AdamW");
    if (no_lr) overrides.push_back(fmt::format("optimizer.params.lr={}", options.lr.value_or(kDefaultLr)));
    run.choices.push_back(
        no_lr ? fmt::format("no optimizer in the config: AdamW with learning rate {}", options.lr.value_or(kDefaultLr))
              : "no optimizer in the config: AdamW");
  }
  if (options.lr) take_lr(*options.lr, root, options.overrides, overrides);
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());

  ConfigContext context;
  context.world_size = world;
  context.hidden_size = hidden_size;
  context.micro_batch_size = kDefaultMicroBatch;
  context.lr = options.lr.value_or(kDefaultLr);
  context.total_steps = options.steps;
  run.config = Config::from_text(text, context, origin, overrides);
  run.same_leaves = worlds_of_same_leaves(run.config, [&](int other) {
    ConfigContext there = context;
    there.world_size = other;
    return Config::from_text(text, there, origin, overrides);
  });
  if (!has_file) {
    run.choices.insert(
        run.choices.begin(),
        fmt::format("no --config: stage {} in {}, thresholds by the size of the model, everything else by "
                    "default{}",
                    run.config.zero.stage, name_of(run.config.precision),
                    options.overrides.empty() ? "" : " or by --set"));
  }
  if (given(root, {"train_batch_size"}).is_null() && given(root, {"train_micro_batch_size_per_gpu"}).is_null() &&
      !overrides_touch(options.overrides, "train_batch_size") &&
      !overrides_touch(options.overrides, "train_micro_batch_size_per_gpu")) {
    run.choices.push_back(fmt::format("no batch in the config: {} samples a rank and micro-step", kDefaultMicroBatch));
  }
  return run;
}

}  // namespace shoal::train
