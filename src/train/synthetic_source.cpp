// See synthetic_source.h.
#include "train/synthetic_source.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/mix.h"
#include "train/sample_order.h"

namespace shoal::train {

namespace {

// Names of independent streams of numbers of one seed.
constexpr uint64_t kWhetherDrawn = 1, kWhatDrawn = 2, kSuccessors = 3;

class Synthetic final : public TokenSource {
 public:
  explicit Synthetic(const SyntheticOptions& options)
      : options_(options),
        whether_key_(mixed(options.seed, kWhetherDrawn)),
        what_key_(mixed(options.seed, kWhatDrawn)) {
    SHOAL_CHECK(options.vocab > 0 && options.numel > 0 && options.surprise > 0 && options.surprise <= 1);
    successors_.reserve(static_cast<size_t>(options.vocab));
    const uint64_t key = mixed(options.seed, kSuccessors);
    for (int64_t token = 0; token < options.vocab; ++token) {
      successors_.push_back(shuffled(token, options.vocab, key));
    }
  }

  int64_t numel() const override { return options_.numel; }
  int64_t vocab() const override { return options_.vocab; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    SHOAL_CHECK(begin >= 0 && numel >= 0 && begin + numel <= options_.numel);
    int64_t index = begin;
    while (!drawn(index)) --index;
    int64_t token = 0;
    for (; index < begin + numel; ++index) {
      token = drawn(index) ? draw(index) : successors_[token];
      if (index >= begin) tokens[index - begin] = token;
    }
  }
  std::string describe() const override {
    return fmt::format("synthetic (vocabulary {}, seed {}, entropy {:.4f} nats a token)", options_.vocab, options_.seed,
                       entropy_of(options_));
  }

 private:
  bool drawn(int64_t index) const {
    const double even = static_cast<double>(mixed(whether_key_, static_cast<uint64_t>(index)) >> 11) * 0x1p-53;
    return index == 0 || even < options_.surprise;
  }
  // The bias of the remainder is below vocab / 2^64.
  int64_t draw(int64_t index) const {
    return static_cast<int64_t>(mixed(what_key_, static_cast<uint64_t>(index)) % static_cast<uint64_t>(options_.vocab));
  }

  SyntheticOptions options_;
  uint64_t whether_key_, what_key_;
  std::vector<int64_t> successors_;
};

}  // namespace

std::unique_ptr<TokenSource> make_synthetic(const SyntheticOptions& options) {
  return std::make_unique<Synthetic>(options);
}

double entropy_of(const SyntheticOptions& options) {
  const double other = options.surprise / static_cast<double>(options.vocab);
  const double successor = 1 - options.surprise + other;
  return -successor * std::log(successor) - static_cast<double>(options.vocab - 1) * other * std::log(other);
}

}  // namespace shoal::train
