// The optimizers: their names, settings and states, one row each. Configs, documents, plans, kernels and the bindings
// follow from this list; docs/adding_an_optimizer.md says what else an optimizer needs. C++17, since nvcc reads it so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>

namespace shoal {

enum class OptimizerKind : uint8_t { adamw, adam, sgd, adagrad, lion, lamb };

// What the config says of the optimizer.
struct OptimizerConfig {
  OptimizerKind kind =
      OptimizerKind::adamw;  // "Adam" in a config is adamw unless adam_w_mode is false, as in DeepSpeed
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  bool bias_correction = true;
  bool fp32_states = true;                  // fp32_optimizer_states; false: moments have the dtype of the masters
  double max_coeff = 10, min_coeff = 0.01;  // of LAMB's trust ratio
  bool eps_inside_sqrt = false;

  // Every field: a struct with one more does not compile here.
  auto fields() const {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *this;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
  friend bool operator==(const OptimizerConfig& x, const OptimizerConfig& y) { return x.fields() == y.fields(); }
  friend bool operator!=(const OptimizerConfig& x, const OptimizerConfig& y) { return !(x == y); }
};

// A key of optimizer.params that an optimizer takes. Keys that all take or refuse alike are not listed.
struct OptimizerSetting {
  std::string_view name;
  std::optional<double> fallback = std::nullopt;  // its default, where it is not that of the key
};

struct OptimizerRow {
  OptimizerKind kind;
  std::string_view name;                        // in configs, whatever the letter case
  std::array<std::string_view, 2> state_names;  // of each element, as torch calls them; "": none
  std::array<OptimizerSetting, 8> settings;
  bool decouples_decay = false;       // weight decay is not added to the gradient
  bool states_need_momentum = false;  // there are none where momentum is 0
  bool by_parameter = false;          // needs norms over whole parameters: see optim/lamb_passes.h

  constexpr int states() const {
    int count = 0;
    for (const std::string_view& state : state_names) count += state.empty() ? 0 : 1;
    return count;
  }
  constexpr bool takes(std::string_view setting) const {
    for (const OptimizerSetting& taken : settings) {
      if (!setting.empty() && taken.name == setting) return true;
    }
    return false;
  }
};

// In the order of OptimizerKind.
inline constexpr OptimizerRow kOptimizers[] = {
    {OptimizerKind::adamw,
     "AdamW",
     {"exp_avg", "exp_avg_sq"},
     {{{"lr"}, {"betas"}, {"eps"}, {"weight_decay"}, {"bias_correction"}, {"adam_w_mode"}}},
     /*decouples_decay=*/true},
    {OptimizerKind::adam,
     "Adam",
     {"exp_avg", "exp_avg_sq"},
     {{{"lr"}, {"betas"}, {"eps"}, {"weight_decay"}, {"bias_correction"}, {"adam_w_mode"}}}},
    {OptimizerKind::sgd,
     "SGD",
     {"momentum_buffer"},
     {{{"lr"}, {"weight_decay"}, {"momentum"}, {"dampening"}, {"nesterov"}}},
     /*decouples_decay=*/false,
     /*states_need_momentum=*/true},
    {OptimizerKind::adagrad, "Adagrad", {"sum"}, {{{"lr", 1e-2}, {"eps", 1e-10}, {"weight_decay"}}}},
    {OptimizerKind::lion,
     "Lion",
     {"exp_avg"},
     {{{"lr"}, {"betas"}, {"weight_decay"}}},
     /*decouples_decay=*/true},
    {OptimizerKind::lamb,
     "Lamb",
     {"exp_avg", "exp_avg_sq"},
     {{{"lr"},
       {"betas"},
       {"eps"},
       {"weight_decay"},
       {"bias_correction"},
       {"max_coeff"},
       {"min_coeff"},
       {"eps_inside_sqrt"}}},
     /*decouples_decay=*/true,
     /*states_need_momentum=*/false,
     /*by_parameter=*/true},
};

namespace detail {

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < std::size(kOptimizers); ++i) {
    if (static_cast<std::size_t>(kOptimizers[i].kind) != i) return false;
  }
  return true;
}

}  // namespace detail
static_assert(detail::rows_are_in_order());

constexpr const OptimizerRow& optimizer_row(OptimizerKind kind) { return kOptimizers[static_cast<std::size_t>(kind)]; }

// By its name as it is spelled in the list; null if there is none.
constexpr const OptimizerRow* find_optimizer(std::string_view name) {
  for (const OptimizerRow& row : kOptimizers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace shoal
