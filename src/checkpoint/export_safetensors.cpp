// See export_safetensors.h.
#include "checkpoint/export_safetensors.h"

#include <fmt/format.h>

#include <filesystem>
#include <unordered_map>

#include "base/json.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/state_reader.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace fs = std::filesystem;

void refuse_weights_in(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find(".safetensors") != std::string::npos && !name.ends_with(kPartialSuffix)) {
      throw Error("checkpoint export", fmt::format("{} holds {} already. Name another folder.", folder, name));
    }
  }
}

std::string config_in(const std::string& model_config, DType dtype) {
  json::Value config = json::parse(model_config, "model_config of the checkpoint");
  if (!config.is_object()) throw Error("checkpoint export", "the checkpoint's model_config is not a JSON object.");
  const char* name = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
  const char* key = config.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string member = fmt::format("\"{}\": \"{}\"", key, name);
  const json::Value* before = config.find(key);
  if (before == nullptr && !config.as_object().empty()) {
    const size_t last = model_config.find_last_not_of(" \t\r\n", model_config.rfind('}') - 1);
    return fmt::format("{},\n  {}\n}}\n", model_config.substr(0, last + 1), member);
  }
  if (before != nullptr) {
    const std::string old = fmt::format("\"{}\": {}", key, json::write(*before));
    const size_t found = model_config.find(old);
    if (found != std::string::npos && model_config.find(old, found + 1) == std::string::npos) {
      return std::string(model_config).replace(found, old.size(), member);
    }
  }
  config.set(key, name);
  return json::write(config, 2) + "\n";
}

Exported export_safetensors(const std::string& checkpoint_path, const std::string& folder,
                            const SafetensorsWriteOptions& options, const PiecesOfModel& pieces_of) {
  StateReader reader(checkpoint_path);
  const Manifest& manifest = reader.manifest();
  if (manifest.leaves_out_frozen()) {
    throw Error("checkpoint export",
                fmt::format("{} holds trained parameters alone, as of a run with --lora. Give --adapter for PEFT's "
                            "format, or --merged for the whole model.",
                            checkpoint_path));
  }
  refuse_weights_in(folder);
  make_folders(folder);
  Exported exported;
  std::vector<SafeTensor> tensors;
  std::unordered_map<std::string, int> indices;
  for (const SavedParam& param : manifest.params) {
    indices.emplace(param.name, static_cast<int>(tensors.size()));
    tensors.push_back({param.name, "", param.shape});
    exported.numel += param.numel();
  }
  const auto config = manifest.extra.find("model_config");
  const bool has_config = config != manifest.extra.end();
  const FillValues fill = [&](const std::string& name, int64_t begin, int64_t numel, float* values) {
    reader.read(indices.at(name), StateKind::weight, begin, numel, values);
  };
  const PiecedTensors pieced =
      in_pieces(tensors, fill, pieces_of && has_config ? pieces_of(config->second) : StoredPieces());
  exported.tensors = static_cast<int64_t>(pieced.tensors.size());
  // The config first: a folder with weights and without it would look finished.
  if (has_config) {
    write_text((fs::path(folder) / "config.json").string(), config_in(config->second, options.dtype));
    exported.has_config = true;
  }
  write_safetensors(folder, pieced.tensors, options, pieced.fill);
  return exported;
}

}  // namespace shoal::checkpoint
