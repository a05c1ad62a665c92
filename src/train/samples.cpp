// See samples.h.
#include "train/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace shoal::train {

std::string name_of(Packing packing) {
  switch (packing) {
    case Packing::automatic: return "auto";
    case Packing::on: return "on";
    case Packing::off: return "off";
  }
  return "?";
}

namespace {

class Windows final : public Samples {
 public:
  Windows(const TokenSource& source, const CutOptions& cut) : source_(source), cut_(cut) {
    SHOAL_CHECK(cut.sequence > 0);
    const int64_t samples = (source.numel() - 1) / cut.sequence;
    validation_ = validation_of(samples, cut.validation);
    train_ = samples - validation_;
  }

  int64_t train() const override { return train_; }
  int64_t validation() const override { return validation_; }
  int64_t at(int64_t position) const override { return SampleOrder(cut_.seed, train_).at(position); }
  std::vector<int64_t> read(int64_t sample, Row row) const override {
    source_.read(sample * cut_.sequence, cut_.sequence, row.tokens);
    std::copy(row.tokens + 1, row.tokens + cut_.sequence, row.targets);
    source_.read((sample + 1) * cut_.sequence, 1, row.targets + cut_.sequence - 1);
    return {cut_.sequence};
  }
  int64_t learned(int64_t) const override { return cut_.sequence; }
  bool has_documents() const override { return false; }
  std::string made_of() const override { return fmt::format("{} tokens make", source_.numel()); }

 private:
  const TokenSource& source_;
  CutOptions cut_;
  int64_t train_ = 0;
  int64_t validation_ = 0;
};

}  // namespace

std::unique_ptr<Samples> cut_windows(const TokenSource& source, const CutOptions& cut) {
  return std::make_unique<Windows>(source, cut);
}

int64_t validation_of(int64_t samples, double share) {
  SHOAL_CHECK(share >= 0 && share < 1);
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * share));
}

}  // namespace shoal::train
