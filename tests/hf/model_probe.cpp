// Opens a model as the trainer would and writes down what it does, for model_parity_test.py to compare.
//
//   model_probe [--lora SPEC] FOLDER TOKENS CONFIG OUT [FOLDER TOKENS CONFIG OUT]...
//   model_probe --read CONFIG_JSON...
//
// The second form prints what is read of each config.json of a dense family, a line of JSON each.
// TOKENS: int64 steps, batch, time, then [steps, batch, time + 1] token ids. CONFIG: DeepSpeed's JSON. Into OUT go
// logits.f32 of the first batch before training; losses.txt, one line a step; the gradients of the first step
// (gradients/) and weights before training as safetensors in one file (whole/) and in many (sharded/), each of these
// with a config.json. With LoRA the adapters are among the weights, those after training go into trained/, and
// evaluated.f32 has the logits of the first batch by then.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "models/dense/config.h"
#include "models/open_model.h"
#include "shoal/engine.h"

namespace {

namespace fs = std::filesystem;
using shoal::models::LanguageModel;

at::Tensor read_tokens(const char* path) {
  std::ifstream file(path, std::ios::binary);
  int64_t sizes[3] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  at::Tensor tokens = at::empty({sizes[0], sizes[1], sizes[2] + 1}, at::kLong);
  file.read(reinterpret_cast<char*>(tokens.data_ptr()), static_cast<std::streamsize>(tokens.nbytes()));
  if (!file) throw std::runtime_error("the token file is too short");
  return tokens;
}

std::string read_text(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_tensor(const fs::path& path, const at::Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
}

// The weights, tied ones once.
void export_weights(const LanguageModel& model, shoal::Engine& engine, const fs::path& folder, uint64_t shard_nbytes) {
  std::vector<shoal::SafeTensor> tensors;
  std::map<std::string, at::Tensor> by_name;
  for (const shoal::Unit& unit : model.units()) {
    for (const shoal::Parameter& param : unit.params) {
      bool known = false;
      for (const auto& [name, tensor] : by_name) known = known || tensor.is_same(param.tensor);
      if (known) continue;
      tensors.push_back({param.name, "", param.tensor.sizes().vec()});
      by_name[param.name] = param.tensor;
    }
  }
  const shoal::PiecedTensors pieced = shoal::in_pieces(
      tensors,
      [&](const std::string& name, int64_t begin, int64_t numel, float* out) {
        engine.with_gathered({name}, shoal::Access::read, [&] {
          const at::Tensor values = by_name[name].detach().flatten().narrow(0, begin, numel).to(at::kFloat);
          std::memcpy(out, values.const_data_ptr<float>(), static_cast<size_t>(numel) * sizeof(float));
        });
      },
      model.stored_pieces());
  shoal::write_safetensors(folder.string(), pieced.tensors,
                           {.dtype = shoal::DType::f32, .max_shard_nbytes = shard_nbytes}, pieced.fill);
  std::ofstream(folder / "config.json") << model.config_json();
}

// Of a backward that has ended a step, in a world of one.
void export_gradients(shoal::Engine& engine, const fs::path& folder) {
  std::map<std::string, std::vector<float>> by_name;
  std::vector<shoal::SafeTensor> tensors;
  for (const shoal::StateRun& run : engine.state().owned_gradients()) {
    const shoal::ParamInfo& param = engine.state().params()[static_cast<size_t>(run.param)];
    std::vector<float>& values = by_name[param.name];
    if (values.empty()) {
      values.resize(static_cast<size_t>(at::empty(param.shape, at::kMeta).numel()));
      tensors.push_back({param.name, "", param.shape});
    }
    engine.state().read_gradient(run, values.data() + run.begin);
  }
  shoal::write_safetensors(folder.string(), tensors, {.dtype = shoal::DType::f32},
                           [&](const std::string& name, int64_t begin, int64_t numel, float* out) {
                             std::copy_n(by_name[name].data() + begin, numel, out);
                           });
}

// The longest sequence that frequencies are printed of.
constexpr int64_t kTime = 24;

shoal::json::Value turns_of(const shoal::models::RopeConfig& rope, int64_t head_dim) {
  shoal::json::Array frequencies;
  for (const float turn : shoal::models::rope_frequencies(rope, head_dim, kTime))
    frequencies.emplace_back(double{turn});
  return shoal::json::Object{{"frequencies", frequencies, {}},
                             {"factor", shoal::models::rope_attention_factor(rope), {}}};
}

const char* name_of(shoal::models::Activation activation) {
  switch (activation) {
    case shoal::models::Activation::silu: return "silu";
    case shoal::models::Activation::gelu_exact: return "gelu";
    case shoal::models::Activation::gelu_tanh: return "gelu_pytorch_tanh";
    case shoal::models::Activation::relu: return "relu";
  }
  return "";
}

void print_read(const char* path) {
  const auto root = shoal::json::parse(read_text(path), path);
  const shoal::models::DenseConfig read = shoal::models::read_dense_config({root, path});
  shoal::json::Array windows;
  for (const shoal::models::DenseLayer& layer : read.each_layer) windows.emplace_back(layer.window);
  shoal::json::Value line = shoal::json::Object{};
  line.set("ffn", read.ffn);
  line.set("kv_heads", read.kv_heads);
  line.set("head_dim", read.head_dim);
  line.set("max_positions", read.max_positions);
  line.set("norm_eps", read.norm_eps);
  line.set("initializer_range", read.initializer_range);
  line.set("padding", read.padding_token ? shoal::json::Value(*read.padding_token) : shoal::json::Value());
  line.set("tied", read.tied);
  line.set("o_bias", read.o_bias);
  line.set("activation", name_of(read.activation));
  line.set("windows", windows);
  line.set("experts", read.experts.count);
  line.set("experts_per_token", read.experts.per_token);
  line.set("expert_ffn", read.experts.ffn);
  line.set("shared_ffn", read.experts.shared_ffn);
  line.set("normalizes", read.experts.normalizes);
  line.set("balance", read.experts.balance);
  line.set("rope", turns_of(read.rope, read.head_dim));
  line.set("local_rope", turns_of(read.local_rope, read.head_dim));
  std::printf("%s\n", shoal::json::write(line).c_str());
}

using Lora = std::optional<shoal::models::LoraSpec>;

void probe(const char* folder, const char* token_path, const char* config_path, const fs::path& out, const Lora& lora) {
  const std::unique_ptr<LanguageModel> model = shoal::models::open_model(folder, {.lora = lora});
  const std::unique_ptr<shoal::Group> world = shoal::make_single_group();
  shoal::Engine engine(model->units(), shoal::Config::from_file(config_path), *world);
  const at::Tensor tokens = read_tokens(token_path);
  const int64_t time = tokens.size(2) - 1;

  engine.evaluate([&] { write_tensor(out / "logits.f32", model->logits(engine, tokens[0].narrow(1, 0, time))); });
  export_weights(*model, engine, out / "whole", uint64_t{5} << 30);
  export_weights(*model, engine, out / "sharded", 20'000);

  std::ofstream losses(out / "losses.txt");
  losses.precision(17);
  for (int64_t step = 0; step < tokens.size(0); ++step) {
    const at::Tensor batch = tokens[step];
    const at::Tensor loss =
        model->loss(engine, batch.narrow(1, 0, time).contiguous(), batch.narrow(1, 1, time).contiguous());
    losses << loss.item<double>() << "\n";
    engine.backward(loss);
    if (step == 0) export_gradients(engine, out / "gradients");
    engine.step();
  }
  if (!lora) return;
  export_weights(*model, engine, out / "trained", uint64_t{5} << 30);
  engine.evaluate([&] { write_tensor(out / "evaluated.f32", model->logits(engine, tokens[0].narrow(1, 0, time))); });
}

}  // namespace

int main(int argc, char** argv) {
  const bool reads = argc > 2 && std::strcmp(argv[1], "--read") == 0;
  const int first = argc > 2 && std::strcmp(argv[1], "--lora") == 0 ? 3 : 1;
  if (!reads && (argc < 5 || (argc - first) % 4 != 0)) {
    std::fprintf(stderr, "usage: model_probe [--lora SPEC] FOLDER TOKENS CONFIG OUT... | --read CONFIG_JSON...\n");
    return 2;
  }
  try {
    for (int i = 2; reads && i < argc; ++i) print_read(argv[i]);
    if (reads) return 0;
    Lora lora;
    if (first > 1) lora = shoal::models::parse_lora(argv[2]);
    for (int i = first; i < argc; i += 4) probe(argv[i], argv[i + 1], argv[i + 2], argv[i + 3], lora);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
