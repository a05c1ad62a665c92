// LoRA as `--lora` asks for it: a frozen base, and beside some of its matrices two small ones that are trained, so that
// a matrix gives W x + alpha / r * B A x. Says what is asked for and which matrices it means; adapters.h computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::models {

struct LoraSpec {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;  // of what A reads
  // As PEFT matches target_modules: a module's name, or the end of it after a dot. Empty: the matrices that make
  // queries and values.
  std::vector<std::string> targets = {};

  double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const LoraSpec&) const = default;
};

inline constexpr const char* kAllLinear = "all-linear";  // as the only target: every matrix of the blocks

// "r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05"; targets and dropout may be left out. Throws Error("--lora").
LoraSpec parse_lora(const std::string& text);
// As parse_lora reads it, the same text for the same spec: in this order, targets by the alphabet.
std::string to_text(const LoraSpec& spec);

// What a model made of it.
struct LoraInfo {
  LoraSpec spec;                     // with the targets that were meant, none of them kAllLinear
  std::vector<std::string> modules;  // that have adapters, in the model's order
  int64_t numel = 0;                 // of the adapters
  bool transposed = false;           // the base's matrices lie [in, out], as GPT-2's do
};

// Finds the matrices that a spec means, as a model declares them.
class LoraTargets {
 public:
  explicit LoraTargets(LoraSpec spec) : spec_(std::move(spec)) {}

  const LoraSpec& spec() const { return spec_; }
  // Whether the matrix `module` has adapters. `makes_qv`: queries or values are among what it makes.
  bool has(const std::string& module, bool makes_qv);
  // No adapter is made for this matrix: a spec that means it is none for the model.
  void refuse(const std::string& module);
  // After the last matrix. Throws Error("--lora") for targets that the model, `name`, does not have, or that mean a
  // refused matrix.
  LoraSpec resolved(const std::string& name) const;

 private:
  LoraSpec spec_;
  std::vector<std::string> known_;               // last words of all modules that were asked about, once each
  std::vector<std::string> chosen_;              // of those with adapters
  std::vector<std::string> matching_;            // targets that meant one
  std::vector<std::string> refused_;             // last words of refused modules
  std::string refused_target_, refused_module_;  // the first target that meant one of them, and this
};

}  // namespace shoal::models
