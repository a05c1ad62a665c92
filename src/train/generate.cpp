// See generate.h.
#include "train/generate.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/mix.h"
#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "models/lora_base.h"
#include "models/open_model.h"
#include "shoal/checkpoint.h"
#include "shoal/error.h"
#include "train/pick_token.h"
#include "train/prepare.h"
#include "train/text_source.h"

namespace shoal::train {

namespace {

// No optimizer states: SGD without momentum keeps none.
constexpr const char* kConfig = R"({
  "train_batch_size": 1, "zero_optimization": {"stage": 0}, "optimizer": {"type": "SGD", "params": {"lr": 0}}
})";

// `model`: where it is; "": the checkpoint says it.
std::unique_ptr<models::LanguageModel> open_saved_model(const std::string& checkpoint_path, const std::string& model,
                                                        uint64_t seed) {
  const checkpoint::Manifest manifest = checkpoint::read_manifest(checkpoint_path);
  if (const auto lora = models::find_lora(manifest.extra, checkpoint_path)) {
    auto opened = models::open_lora_model(*lora, model, "--checkpoint");
    models::check_base(*lora, *opened, "--checkpoint", *make_single_group());
    return opened;
  }
  if (!model.empty()) return models::open_model(model, {.seed = seed});
  const auto config = manifest.extra.find("model_config");
  if (config == manifest.extra.end()) {
    throw Error("--checkpoint",
                fmt::format("{} does not say which model it is of. Give --model too.", checkpoint_path));
  }
  return models::open_model_of_config(config->second, checkpoint_path);
}

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit) {
  if (options.checkpoint.empty() && options.model.empty()) {
    throw Error("--checkpoint", "neither a checkpoint nor a --model is given. Give one.");
  }
  const std::string path =
      options.checkpoint.empty() ? "" : checkpoint::resolve_checkpoint(options.checkpoint, "--checkpoint");
  const std::unique_ptr<models::LanguageModel> model = path.empty()
                                                           ? models::open_model(options.model, {.seed = options.seed})
                                                           : open_saved_model(path, options.model, options.seed);
  const models::ModelInfo& info = model->info();
  if (!info.byte_tokens && info.vocab != kByteVocab) {
    throw Error("--model",
                fmt::format("its {} tokens are not bytes, and without their tokenizer there is no text. Export "
                            "the checkpoint and generate with transformers.",
                            info.vocab));
  }
  if (options.prompt.empty()) throw Error("--prompt", "is empty. Give at least one character to go on from.");

  if (path.empty() && info.weights_from.empty() && options.note) {
    options.note(
        fmt::format("{} comes without weights, and no --checkpoint is given: what follows is noise.", info.origin));
  }

  const std::unique_ptr<Group> alone = make_single_group();
  Engine engine(model->units(), Config::from_text(kConfig), *alone, {.broadcast_weights = false});
  if (!path.empty()) load_checkpoint(engine, *alone, path);

  emit(options.prompt);
  std::vector<int64_t> tokens;
  for (const char byte : options.prompt) tokens.push_back(static_cast<unsigned char>(byte));
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t time = std::min<int64_t>(static_cast<int64_t>(tokens.size()), info.max_positions);
    const at::Tensor window = at::empty({1, time}, at::kLong);
    std::copy(tokens.end() - time, tokens.end(), window.mutable_data_ptr<int64_t>());
    engine.evaluate([&] {
      const at::Tensor last = model->logits(engine, window)[0][time - 1].contiguous();
      const double even = static_cast<double>(mixed(options.seed, static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
      tokens.push_back(
          pick_token({last.const_data_ptr<float>(), static_cast<size_t>(last.numel())}, options.temperature, even));
    });
    const char byte = static_cast<char>(tokens.back());
    emit({&byte, 1});
  }
}

}  // namespace shoal::train
