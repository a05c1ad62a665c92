// See lora_export.h.
#include "models/lora_export.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/state_reader.h"
#include "shoal/error.h"

namespace shoal::models {

namespace {

namespace fs = std::filesystem;
using checkpoint::Exported;
using checkpoint::StateReader;

constexpr const char* kExportPlace = "checkpoint export";
constexpr const char* kAdapterStem = "adapter_model";
constexpr const char* kPeftPrefix = "base_model.model.";  // before the names of the model that PEFT wraps

// A checkpoint of adapters and the model that they belong to.
struct OpenedAdapters {
  explicit OpenedAdapters(const LoraExport& what, const char* flag) : reader(what.checkpoint) {
    const std::optional<LoraBase> found = find_lora(reader.manifest().extra, what.checkpoint);
    if (!found) {
      throw Error(kExportPlace, fmt::format("{} is of a run without --lora, and there are no adapters in it. Leave {} "
                                            "out for the whole model.",
                                            what.checkpoint, flag));
    }
    base = *found;
    model = open_lora_model(base, what.base, kExportPlace);
    const std::vector<checkpoint::SavedParam>& params = reader.manifest().params;
    for (size_t i = 0; i < params.size(); ++i) numbers.emplace(params[i].name, static_cast<int>(i));
  }

  // A whole parameter of the checkpoint.
  at::Tensor read(const std::string& name) {
    const auto number = numbers.find(name);
    if (number == numbers.end()) {
      throw Error(kExportPlace, fmt::format("{} has no {}. Give the model that it was trained on.",
                                            reader.manifest().extra.at("lora"), name));
    }
    const at::Tensor values =
        at::empty(reader.manifest().params[static_cast<size_t>(number->second)].shape, at::kFloat);
    reader.read(number->second, StateKind::weight, 0, values.numel(), values.mutable_data_ptr<float>());
    return values;
  }

  StateReader reader;
  LoraBase base;
  std::unique_ptr<LanguageModel> model;
  std::unordered_map<std::string, int> numbers;  // of the checkpoint's parameters
};

json::Value number_of(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? json::Value(whole) : json::Value(value);
}

// As PEFT writes it, for reading: with all that has another default than is meant.
std::string adapter_config(const LoraBase& base, const LoraInfo& made) {
  json::Value config = json::Object{};
  const bool is_folder = !base.model.starts_with(kBuiltinPrefix);
  config.set("peft_type", "LORA");
  config.set("task_type", "CAUSAL_LM");
  config.set("base_model_name_or_path", is_folder ? json::Value(base.model) : json::Value());
  config.set("r", made.spec.rank);
  config.set("lora_alpha", number_of(made.spec.alpha));
  config.set("lora_dropout", made.spec.dropout);
  config.set("target_modules", json::Array(made.spec.targets.begin(), made.spec.targets.end()));
  config.set("bias", "none");
  config.set("fan_in_fan_out", made.transposed);
  config.set("use_rslora", false);
  config.set("use_dora", false);
  config.set("modules_to_save", json::Value());
  config.set("init_lora_weights", true);
  config.set("inference_mode", true);
  return json::write(config, 2) + "\n";
}

// What a matrix's adapter adds to it, row by row as it lies.
class Added {
 public:
  Added(const at::Tensor& a, const at::Tensor& b, double scale, bool transposed)
      : left_(transposed ? a.t().contiguous() : b), right_((transposed ? b.t().contiguous() : a).mul(scale)) {}

  void add_to(int64_t begin, int64_t numel, float* values) const {
    const int64_t columns = right_.size(1);
    const int64_t first = begin / columns, last = (begin + numel + columns - 1) / columns;
    const at::Tensor rows = at::mm(left_.narrow(0, first, last - first), right_);
    const float* added = rows.const_data_ptr<float>() + (begin - first * columns);
    for (int64_t i = 0; i < numel; ++i) values[i] += added[i];
  }

 private:
  at::Tensor left_, right_;  // [rows, rank], [rank, columns]
};

}  // namespace

std::optional<LoraBase> lora_of_checkpoint(const std::string& checkpoint_path) {
  return find_lora(checkpoint::read_manifest(checkpoint_path).extra, checkpoint_path);
}

Exported export_adapter(const LoraExport& what) {
  OpenedAdapters opened(what, "--adapter");
  checkpoint::refuse_weights_in(what.folder);
  checkpoint::make_folders(what.folder);
  Exported exported;
  std::vector<SafeTensor> tensors;
  for (const checkpoint::SavedParam& param : opened.reader.manifest().params) {
    tensors.push_back({kPeftPrefix + param.name, "", param.shape});
    exported.numel += param.numel();
  }
  exported.tensors = static_cast<int64_t>(tensors.size());
  exported.has_config = true;
  checkpoint::write_text((fs::path(what.folder) / "adapter_config.json").string(),
                         adapter_config(opened.base, *opened.model->info().lora));
  constexpr uint64_t kOneFile = uint64_t{1} << 62;
  write_safetensors(what.folder, tensors, {.dtype = what.dtype, .max_shard_nbytes = kOneFile, .stem = kAdapterStem},
                    [&](const std::string& name, int64_t begin, int64_t numel, float* values) {
                      const int param = opened.numbers.at(name.substr(std::strlen(kPeftPrefix)));
                      opened.reader.read(param, StateKind::weight, begin, numel, values);
                    });
  return exported;
}

Exported export_merged(const LoraExport& what) {
  OpenedAdapters opened(what, "--merged");
  const LanguageModel& model = *opened.model;
  const LoraInfo& made = *model.info().lora;
  check_base(opened.base, model, kExportPlace, *make_single_group());
  checkpoint::refuse_weights_in(what.folder);
  checkpoint::make_folders(what.folder);
  std::unordered_map<std::string, Added> added;  // small: adapters are
  for (const std::string& module : made.modules) {
    added.emplace(module + ".weight",
                  Added(opened.read(module + ".lora_A.weight"), opened.read(module + ".lora_B.weight"),
                        made.spec.scale(), made.transposed));
  }
  Exported exported;
  std::vector<SafeTensor> tensors;
  std::unordered_map<std::string, std::shared_ptr<const ValueSource>> sources;
  std::vector<at::Tensor> seen;  // tied ones go out once
  for (const Unit& unit : model.units()) {
    for (const Parameter& param : unit.params) {
      const bool is_tied =
          std::any_of(seen.begin(), seen.end(), [&](const auto& t) { return t.is_same(param.tensor); });
      if (param.tensor.requires_grad() || is_tied) continue;
      seen.push_back(param.tensor);
      tensors.push_back({param.name, "", param.tensor.sizes().vec()});
      sources.emplace(param.name, param.source);
      exported.numel += param.tensor.numel();
    }
  }
  const FillValues fill = [&](const std::string& name, int64_t begin, int64_t numel, float* values) {
    sources.at(name)->read(begin, numel, values);
    if (const auto adapter = added.find(name); adapter != added.end()) adapter->second.add_to(begin, numel, values);
  };
  const PiecedTensors pieced = in_pieces(tensors, fill, model.stored_pieces());
  exported.tensors = static_cast<int64_t>(pieced.tensors.size());
  exported.has_config = true;
  checkpoint::write_text((fs::path(what.folder) / "config.json").string(),
                         checkpoint::config_in(model.config_json(), what.dtype));
  write_safetensors(what.folder, pieced.tensors, {.dtype = what.dtype}, pieced.fill);
  return exported;
}

}  // namespace shoal::models
