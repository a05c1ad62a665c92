// See experts_config.h.
#include "models/dense/experts_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace shoal::models {

namespace {

// A slip of the pen would fill the memory: files have a tensor for each.
constexpr int64_t kMostExperts = 1 << 16;

// Of routers that choose otherwise than by the largest of a softmax (DeepSeek's, Ernie's, GLM's). The families here do
// not know them, and transformers passes over them.
constexpr std::array<const char*, 14> kOtherRouters = {"n_routed_experts",
                                                       "n_shared_experts",
                                                       "num_shared_experts",
                                                       "scoring_func",
                                                       "topk_method",
                                                       "n_group",
                                                       "topk_group",
                                                       "routed_scaling_factor",
                                                       "first_k_dense_replace",
                                                       "moe_layer_freq",
                                                       "moe_k",
                                                       "moe_layer_interval",
                                                       "router_z_loss_coef",
                                                       "expert_capacity"};

// Both names are known to transformers.
int64_t read_count(const HfConfig& config, int64_t otherwise) {
  const bool other = config.find("num_local_experts") != nullptr;
  const char* key = other ? "num_local_experts" : "num_experts";
  const int64_t count = config.count(key, otherwise);
  if (other && config.count("num_experts", count) != count) {
    config.refuse("num_experts", fmt::format("num_local_experts is {}: leave one of them out.", count));
  }
  if (count > kMostExperts) config.refuse(key, fmt::format("Use {} at most.", kMostExperts));
  return count;
}

double read_balance(const HfConfig& config, double otherwise) {
  const double coefficient = config.number("router_aux_loss_coef", otherwise);
  if (!std::isfinite(coefficient) || coefficient < 0) config.refuse("router_aux_loss_coef", "Use 0 or more.");
  return config.flag("output_router_logits", false) ? coefficient : 0;
}

// Numbers of layers, those that do not exist among them: transformers compares each layer's with them.
std::vector<int64_t> dense_layers(const HfConfig& config) {
  std::vector<int64_t> layers;
  const json::Value* list = config.find("mlp_only_layers");
  if (list == nullptr) return layers;
  if (!list->is_array()) config.refuse("mlp_only_layers", "Give a list of layers, counted from 0.");
  for (const json::Value& layer : list->as_array()) {
    if (!layer.is_integer()) config.refuse("mlp_only_layers", "Give a list of layers, counted from 0.");
    layers.push_back(layer.as_integer());
  }
  return layers;
}

}  // namespace

void read_experts(const HfConfig& config, const DenseFamily& family, DenseConfig& read) {
  const ExpertDefaults& by = family.experts;
  if (by.count == 0) return;
  for (const char* key : kOtherRouters) {
    if (config.find(key) != nullptr) {
      config.refuse(key, fmt::format("Leave it out: {} has no such key, and its routers take the largest of a softmax.",
                                     family.type.model_type));
    }
  }
  DenseExperts& experts = read.experts;
  experts.count = read_count(config, by.count);
  experts.per_token = config.count("num_experts_per_tok", by.per_token);
  if (experts.per_token > experts.count) {
    config.refuse("num_experts_per_tok", fmt::format("{}Use {} at most, as many as there are experts.",
                                                     config.find("num_experts_per_tok") == nullptr
                                                         ? fmt::format("Left out it is {}. ", experts.per_token)
                                                         : "",
                                                     experts.count));
  }
  experts.ffn = config.count(by.ffn, by.ffn_width > 0 ? std::optional(by.ffn_width) : std::nullopt);
  experts.normalizes = config.flag("norm_topk_prob", by.always_normalizes);
  if (by.always_normalizes && !experts.normalizes) config.refuse("norm_topk_prob", "Leave it out, or use true.");
  if (by.shared_ffn > 0) experts.shared_ffn = config.count("shared_expert_intermediate_size", by.shared_ffn);
  if (config.number("router_jitter_noise", 0.0) != 0) config.refuse("router_jitter_noise", "Use 0.");
  if (read.activation != Activation::silu) config.refuse(family.keys.activation, "Use \"silu\": experts are SwiGLU.");
  experts.balance = read_balance(config, by.balance);
  const int64_t every = by.in_some_layers ? config.count("decoder_sparse_step", 1) : 1;
  const std::vector<int64_t> dense = by.in_some_layers ? dense_layers(config) : std::vector<int64_t>();
  for (int64_t layer = 0; layer < read.layers; ++layer) {
    const bool left_out = std::find(dense.begin(), dense.end(), layer) != dense.end();
    read.each_layer[static_cast<size_t>(layer)].experts = !left_out && (layer + 1) % every == 0;
  }
}

}  // namespace shoal::models
