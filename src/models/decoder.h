// What the families have in common: an embedding, blocks in a row, a head; a unit each. A family declares the
// parameters and says what each part computes; this class runs the parts through the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/layers.h"
#include "models/open_model.h"
#include "models/ops/linear.h"
#include "models/ops/rotary.h"

namespace shoal::models {

// What the routers of one forward did: how many tokens each expert of a layer got, [experts] int64. A recomputed block
// counts once.
struct RoutedTokens {
  std::vector<at::Tensor> of_layer;  // undefined of layers without experts
};

// What the parts of one forward share.
struct Pass {
  Randomness randomness;
  ops::Matmul matmul = ops::Matmul::plain;     // of the blocks
  ops::RotaryTable rotary;                     // undefined where a family has no rotary positions
  ops::RotaryTable local_rotary;               // of layers that turn otherwise
  bool remakes = false;                        // this block recomputes selectively
  size_t layer = 0;                            // of this block
  std::shared_ptr<const Documents> documents;  // of packed rows; null: each row is one
  std::shared_ptr<RoutedTokens> routed;        // null: the model has no experts
  // [experts] fp32: what routers gave each expert so far, summed over tokens and layers; null: it is not asked for.
  at::Tensor* probabilities = nullptr;

  // A matmul's input, with what is kept of it for backward.
  ops::Operand operand(at::Tensor made, ops::Origin origin) const {
    return remakes ? ops::Operand(std::move(made), std::move(origin)) : ops::Operand(std::move(made));
  }
};

// What a model is made of, whatever its family.
struct DecoderParts {
  ModelInfo info;
  std::vector<Unit> units;
  Recompute recompute = Recompute::none;
  std::string config_json;  // to export
};

// Bytes that one block keeps for backward, and gradients that its backward holds at once.
struct BlockNbytes {
  size_t kept = 0;
  size_t remade = 0;  // of `kept`: what selective recompute makes again
  size_t in_flight = 0;
};

class Decoder : public LanguageModel {
 public:
  explicit Decoder(DecoderParts parts);

  const ModelInfo& info() const final { return info_; }
  std::string config_json() const final { return config_json_; }
  std::vector<Unit> units() const final { return units_; }
  using LanguageModel::loss;
  at::Tensor loss(Engine& engine, const at::Tensor& tokens, const at::Tensor& targets,
                  std::shared_ptr<const Documents> documents, ForwardReport* report) const final;
  at::Tensor logits(Engine& engine, const at::Tensor& tokens) const final;
  const RecomputedBlocks& recomputed() const final { return recomputed_; }
  void set_recomputed(const RecomputedBlocks& blocks) final;
  using LanguageModel::activation_nbytes;
  ActivationNbytes activation_nbytes(const MicroStep& of, const RecomputedBlocks& recomputed) const final;

 protected:
  // tokens [batch, time] -> x [batch, time, hidden].
  virtual at::Tensor embed(const Pass& pass, const at::Tensor& tokens) const = 0;
  virtual at::Tensor block(const Pass& pass, size_t layer, const at::Tensor& x) const = 0;
  // What the head reads, in the dtype of x.
  virtual at::Tensor last_norm(const at::Tensor& x) const = 0;
  virtual const at::Tensor& head_weight() const = 0;  // [vocab, hidden]
  // c: the logits are c tanh(logits / c); 0: as they are.
  virtual double logits_softcap() const { return 0; }
  // Fills in what depends on the length of the sequence, by positions that count from a row's begin; x as embed() gave
  // it.
  virtual void add_positions(Pass&, const at::Tensor& /*x*/) const {}
  virtual BlockNbytes block_nbytes(const MicroStep& of, size_t layer) const = 0;

 private:
  // What the blocks give, for the head.
  struct Blocks {
    at::Tensor x;
    std::shared_ptr<RoutedTokens> routed;
    at::Tensor probabilities;  // see Pass; undefined where there is no auxiliary loss
  };
  Blocks run_blocks(Engine& engine, const at::Tensor& tokens, std::shared_ptr<const Documents> documents) const;
  // x through a block; with the probabilities where they are asked for.
  void run_block(Engine& engine, const Pass& pass, Blocks& blocks) const;
  at::Tensor balance_loss(const Blocks& blocks, int64_t tokens) const;
  int head_unit() const { return static_cast<int>(units_.size()) - 1; }

  ModelInfo info_;
  std::vector<Unit> units_;
  std::string config_json_;
  RecomputedBlocks recomputed_;
};

}  // namespace shoal::models
