// See open_model.h.
#include "models/open_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/safetensors_format.h"
#include "models/builtin.h"
#include "models/dense/model.h"
#include "models/family.h"
#include "models/gpt2/model.h"
#include "shoal/error.h"

namespace shoal::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";

std::vector<Family> families() { return {dense_family(), gpt2_family()}; }

std::string known_types() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    for (const ModelType& type : family.types)
      names.push_back(fmt::format("{} ({})", type.model_type, type.architecture));
  }
  return join(names, ", ");
}

[[noreturn]] void refuse_architecture(const HfConfig& config, const std::string& key, const std::string& value) {
  throw Error(
      fmt::format("{} {}", config.origin(), key),
      fmt::format("\"{}\" is not an architecture known here. Known: {}. Any other that transformers knows trains from "
                  "a script with `import shoal` or `import deepspeed`: docs/huggingface.md.",
                  value, known_types()));
}

// The one architecture that config.json names, or "".
std::string architecture_in(const HfConfig& config) {
  const json::Value* list = config.find("architectures");
  if (list == nullptr || !list->is_array() || list->as_array().empty() || !list->as_array()[0].is_text()) return "";
  return list->as_array()[0].as_text();
}

struct Match {
  Family family;
  ModelType type;
};

// By model_type, as transformers does it, or else by the architecture, which must be one with a language head or the
// bare model.
Match find_family(const HfConfig& config) {
  const std::string architecture = architecture_in(config);
  const std::string model_type = config.text("model_type", "");
  for (const Family& family : families()) {
    for (const ModelType& type : family.types) {
      const bool named = architecture == type.architecture || architecture == type.base_architecture;
      if (model_type.empty() ? named : model_type == type.model_type) {
        if (!architecture.empty() && !named) refuse_architecture(config, "architectures", architecture);
        return {family, type};
      }
    }
  }
  if (model_type.empty()) refuse_architecture(config, "architectures", architecture);
  refuse_architecture(config, "model_type", model_type);
}

std::unique_ptr<LanguageModel> open_config(OpenRequest request, const OpenOptions& options) {
  request.recompute = options.recompute;
  request.lora = options.lora;
  const Match match = find_family(request.config);
  json::Value root = request.config.root();
  root.set("model_type", match.type.model_type);
  if (options.router_aux_loss) {
    root.set("output_router_logits", *options.router_aux_loss > 0);
    root.set("router_aux_loss_coef", *options.router_aux_loss);
  }
  request.config = HfConfig(root, request.config.origin());
  std::unique_ptr<LanguageModel> model = match.family.open(request);
  if (options.router_aux_loss && model->info().experts.count == 0) {
    throw Error("--router-aux-loss",
                fmt::format("{} has no experts whose load it could balance. Leave it out.", request.name));
  }
  return model;
}

// A folder's weights, if it holds any.
WeightsOrigin find_weights(const std::string& folder, uint64_t seed) {
  WeightsOrigin origin;
  origin.path = folder;
  origin.seed = seed;
  if (fs::exists(fs::path(folder) / kSafetensorsFile) || fs::exists(fs::path(folder) / kSafetensorsIndex)) {
    origin.file = SafetensorsReader::open(folder);
    return origin;
  }
  // Weights that are there and cannot be read must not turn into random ones.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.starts_with("pytorch_model")) {
      throw Error(fmt::format("model {}", folder),
                  fmt::format("holds {}, but neither {} nor {}. Convert the weights to safetensors, with the index if "
                              "they are in several files.",
                              name, kSafetensorsFile, kSafetensorsIndex));
    }
  }
  return origin;
}

// "meta-llama/Llama-3.2-1B": an owner and a name, and no path that is there.
bool is_hub_id(const std::string& name) {
  const size_t slash = name.find('/');
  const bool one_slash = slash != std::string::npos && slash > 0 && slash + 1 < name.size() && slash == name.rfind('/');
  std::error_code ignored;
  return one_slash && name[0] != '.' && name[0] != '~' && !fs::exists(name.substr(0, slash), ignored);
}

bool is_folder_of_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kConfigFile, ignored);
}

// A folder of the name that holds a model, but not what says its shape: nobody knows which of the two is meant.
void refuse_half_a_model(const std::string& name) {
  std::error_code ignored;
  for (fs::directory_iterator entry(name, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const std::string file = entry->path().filename().string();
    if (!file.ends_with(".safetensors") && !file.starts_with("pytorch_model") && file != "tokenizer.json") continue;
    throw Error(fmt::format("model {}", name),
                fmt::format("is a folder here, with {} and without a config.json, and a built-in name. Put the "
                            "config.json into the folder, or write {}{} for the built-in model.",
                            file, kBuiltinPrefix, name));
  }
}

// Of a folder, or of the config.json in it.
fs::path folder_named(const std::string& path) {
  fs::path folder = path;
  if (folder.filename() == kConfigFile) folder = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  return folder;
}

// nullptr: a folder is meant. See [Note: a folder comes before a built-in name].
const Builtin* named_builtin(const std::string& name_or_path) {
  if (name_or_path.starts_with(kBuiltinPrefix)) {
    const std::string name = name_or_path.substr(kBuiltinPrefix.size());
    if (const Builtin* builtin = find_builtin(name)) return builtin;
    const std::string near = nearest_word(name, builtin_models());
    throw Error(fmt::format("model {}", name_or_path),
                fmt::format("{} is not built in.{} Built in: {}.", name,
                            near.empty() ? "" : fmt::format(" Did you mean {}?", near), join(builtin_models(), ", ")));
  }
  const Builtin* builtin = find_builtin(name_or_path);
  if (builtin == nullptr || is_folder_of_model(name_or_path)) return nullptr;
  refuse_half_a_model(name_or_path);
  return builtin;
}

}  // namespace

// [Note: a folder comes before a built-in name]
// As in transformers: who has a folder ./gpt2 with a model in it and says gpt2 means that folder. A run and a plan say
// so (name_clash). builtin:gpt2 is the built-in one wherever the command runs.
std::string name_clash(const std::string& name_or_path) {
  if (find_builtin(name_or_path) == nullptr || !is_folder_of_model(name_or_path)) return "";
  return fmt::format("{} is a folder here and a built-in name: the folder is taken. The built-in model is {}{}",
                     name_or_path, kBuiltinPrefix, name_or_path);
}

std::string model_folder(const std::string& name_or_path) {
  return named_builtin(name_or_path) != nullptr ? "" : folder_named(name_or_path).string();
}

std::unique_ptr<LanguageModel> open_model(const std::string& name_or_path, const OpenOptions& options) {
  if (const Builtin* builtin = named_builtin(name_or_path)) {
    const HfConfig config(builtin->config, fmt::format("built-in model {}", builtin->name));
    WeightsOrigin weights;
    weights.seed = options.seed;
    return open_config(
        {.name = name_or_path, .config = config, .weights = weights, .byte_tokens = builtin->byte_tokens}, options);
  }
  const fs::path folder = folder_named(name_or_path);
  const fs::path file = folder / kConfigFile;
  if (!fs::exists(file)) {
    const std::string near = nearest_word(name_or_path, builtin_models());
    const std::string hint = !near.empty()             ? fmt::format(" Did you mean {}?", near)
                             : is_hub_id(name_or_path) ? fmt::format(
                                                             " Nothing is fetched from the Hub here: hf download "
                                                             "{} --local-dir DIR, and give DIR.",
                                                             name_or_path)
                                                       : "";
    throw Error(fmt::format("model {}", name_or_path),
                fmt::format("is neither a built-in name nor a folder with a config.json.{} Built in: {}.", hint,
                            join(builtin_models(), ", ")));
  }
  const HfConfig config(json::parse(checkpoint::read_text(file.string()), file.string()), file.string());
  return open_config({.name = name_or_path, .config = config, .weights = find_weights(folder.string(), options.seed)},
                     options);
}

std::unique_ptr<LanguageModel> open_model_of_config(const std::string& config_json, const std::string& name,
                                                    const OpenOptions& options) {
  const std::string origin = fmt::format("config.json of {}", name);
  WeightsOrigin weights;
  weights.seed = options.seed;
  return open_config({.name = name, .config = HfConfig(json::parse(config_json, origin), origin), .weights = weights},
                     options);
}

std::vector<std::string> builtin_models() {
  std::vector<std::string> names;
  for (const Builtin& builtin : builtins()) names.push_back(builtin.name);
  return names;
}

}  // namespace shoal::models
