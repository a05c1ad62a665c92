// A causal language model as the trainer sees it: units for the engine, a loss, logits. Each family (dense/, gpt2/)
// stands in a folder of its own; open_model (models/open_model.h) finds the right one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/stored_pieces.h"
#include "forecast/decoder_shape.h"
#include "models/documents.h"
#include "models/lora.h"
#include "models/recompute.h"
#include "shoal/engine.h"

namespace shoal::models {

// The experts of a mixture, as others see them.
struct ExpertsInfo {
  int64_t count = 0;  // of a layer; 0: the model has none
  int64_t per_token = 0;
  std::vector<int64_t> layers;  // those that have them, counted from 0
  double balance = 0;           // what the auxiliary loss counts in training; 0: there is none
};

// What a forward tells beside its loss, of a mixture of experts; undefined where there is nothing to tell.
struct ForwardReport {
  at::Tensor balance_loss;   // the auxiliary loss, before it is multiplied with its coefficient
  at::Tensor expert_tokens;  // [layers with experts, experts] int64: how many tokens each got
};

// What others must know of a model without knowing its family.
struct ModelInfo {
  std::string name;          // as the user gave it
  std::string origin;        // what says its shape: "gpt2/config.json", "built-in model gpt2"
  std::string weights_from;  // the folder that its first weights are read from; "": they are made from the seed
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t max_positions = 0;          // longest sequence
  std::string positions_by;           // the key of config.json that says so
  int64_t numel = 0;                  // parameters, tied ones once, adapters too
  bool byte_tokens = false;           // a built-in model over bytes: text can be fed to it without a tokenizer
  forecast::DecoderShape shape = {};  // for the time of a step
  std::optional<LoraInfo> lora = {};  // of a model whose base is frozen
  ExpertsInfo experts = {};
};

// One micro-step, as a plan sees it.
struct MicroStep {
  int64_t batch = 1, time = 1;
  DType dtype = DType::f32;
  at::DeviceType device = at::DeviceType::CPU;
  bool inputs_on_host = false;  // activation_checkpointing.cpu_checkpointing
  bool fp8 = false;             // the matrices of blocks
  bool deterministic = false;   // make_deterministic was called

  size_t rows() const { return static_cast<size_t>(batch * time); }
  // By the operations of models/ops.
  bool is_fused() const { return device == at::DeviceType::CUDA; }
};
struct ActivationNbytes {
  size_t device = 0;
  size_t host = 0;  // off the device
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const ModelInfo& info() const = 0;
  // Parameters by the names they have in Hugging Face checkpoints, each with a source of its first values.
  virtual std::vector<Unit> units() const = 0;
  // The Hugging Face config.json of this model, for export.
  virtual std::string config_json() const = 0;
  // Parameters that Hugging Face checkpoints have in pieces.
  virtual StoredPieces stored_pieces() const { return {}; }

  // tokens, targets [batch, time] int64 -> mean cross-entropy over all tokens but those whose target is -100, one
  // run() per unit; in training of a mixture with the auxiliary loss, if it has one. Inside Engine::evaluate dropout is
  // off. `documents`: where the rows hold several. `report`: to be filled in.
  virtual at::Tensor loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets,
                          std::shared_ptr<const Documents> documents, ForwardReport* report) const = 0;
  at::Tensor loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets,
                  std::shared_ptr<const Documents> documents = nullptr) const {
    return loss(engine, tokens, targets, std::move(documents), nullptr);
  }
  // tokens [batch, time] -> logits [batch, time, vocab], fp32. Call inside Engine::evaluate.
  virtual at::Tensor logits(Engine& engine, const at::Tensor& tokens) const = 0;

  // What backward computes again; another choice gives the same values, and does not change forwards that have run.
  virtual const RecomputedBlocks& recomputed() const = 0;
  virtual void set_recomputed(const RecomputedBlocks& blocks) = 0;

  // Bytes of activations that one micro-step keeps for backward at its peak, estimated from the shapes (for the plan).
  // On a GPU the fused operations of models/ops keep less.
  virtual ActivationNbytes activation_nbytes(const MicroStep& of, const RecomputedBlocks& recomputed) const = 0;
  ActivationNbytes activation_nbytes(const MicroStep& of) const { return activation_nbytes(of, recomputed()); }
};

}  // namespace shoal::models
