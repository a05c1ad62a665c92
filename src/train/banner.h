// What `shoal train` prints before the first step: model, data, ranks, where every byte lives, and what a step moves.
#pragma once

#include <string>

#include "layout/flat_layout.h"
#include "models/language_model.h"
#include "shoal/config.h"

namespace shoal::train {

struct BannerFacts {
  std::string model;    // see model_text
  std::string weights;  // where the first ones come from: see weights_text
  std::string data;
  Config config;
  ModelLayout layout;
  std::string transport;  // Group::transport_name()
  int threads = 1;
  std::string same_bits;  // at which numbers of ranks: same_bits_text
  bool on_gpu = false;
  std::string recompute = "none";  // of activations
  size_t host_activations = 0;     // that wait there for backward
  bool saves_behind = false;       // checkpoints of the run are written behind training
  std::string products;            // how they are made where the CPU lacks the precision: prepare_products
};

// "read from gpt2", "made with seed 1 (gpt2 holds none)", "of the checkpoint run/checkpoints/step-00000100".
std::string weights_text(const models::ModelInfo& model, uint64_t seed, const std::string& checkpoint);

// "llama-tiny: 2,758,000 parameters"; with LoRA a second line, of what is trained of them.
std::string model_text(const models::ModelInfo& model);

// The memory table has a second column, what stage 0 would take; every rank holds as much as every other.
std::string banner(const BannerFacts& facts);

}  // namespace shoal::train
