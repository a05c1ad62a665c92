// See value_sources.h.
#include "models/value_sources.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/counter_random.h"

namespace shoal::models {

namespace {

class ConstantValues final : public ValueSource {
 public:
  explicit ConstantValues(float value) : value_(value) {}
  void read(int64_t, int64_t numel, float* values) const override { std::fill_n(values, numel, value_); }

 private:
  float value_;
};

class NormalValues final : public ValueSource {
 public:
  NormalValues(uint64_t key, double standard_deviation) : key_(key), standard_deviation_(standard_deviation) {}
  void read(int64_t begin, int64_t numel, float* values) const override {
    kernels::fill_normal(key_, standard_deviation_, begin, numel, values);
  }

 private:
  uint64_t key_;
  double standard_deviation_;
};

class UniformValues final : public ValueSource {
 public:
  UniformValues(uint64_t key, double bound) : key_(key), bound_(bound) {}
  void read(int64_t begin, int64_t numel, float* values) const override {
    kernels::fill_uniform(key_, bound_, begin, numel, values);
  }

 private:
  uint64_t key_;
  double bound_;
};

// The values of another source, with zeros in a range.
class PartlyZero final : public ValueSource {
 public:
  PartlyZero(std::shared_ptr<const ValueSource> values, int64_t zero_begin, int64_t zero_end)
      : values_(std::move(values)), zero_begin_(zero_begin), zero_end_(zero_end) {}
  void read(int64_t begin, int64_t numel, float* values) const override {
    values_->read(begin, numel, values);
    const int64_t from = std::max(begin, zero_begin_), to = std::min(begin + numel, zero_end_);
    if (from < to) std::fill_n(values + (from - begin), to - from, 0.0f);
  }

 private:
  std::shared_ptr<const ValueSource> values_;
  int64_t zero_begin_, zero_end_;
};

class FileValues final : public ValueSource {
 public:
  FileValues(std::shared_ptr<const SafetensorsReader> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}
  void read(int64_t begin, int64_t numel, float* values) const override { file_->read(name_, begin, numel, values); }

 private:
  std::shared_ptr<const SafetensorsReader> file_;  // shared by all parameters that it holds
  std::string name_;
};

class JoinedValues final : public ValueSource {
 public:
  explicit JoinedValues(std::vector<ValuePart> parts) : parts_(std::move(parts)) {
    int64_t end = 0;
    for (const ValuePart& part : parts_) {
      SHOAL_CHECK_EQ(part.begin, end);
      end += part.numel;
    }
  }
  void read(int64_t begin, int64_t numel, float* values) const override {
    const int64_t end = begin + numel;
    auto part = std::upper_bound(parts_.begin(), parts_.end(), begin,
                                 [](int64_t at, const ValuePart& of) { return at < of.begin + of.numel; });
    for (; part != parts_.end() && part->begin < end; ++part) {
      const int64_t from = std::max(begin, part->begin), to = std::min(end, part->begin + part->numel);
      part->values->read(from - part->begin, to - from, values + (from - begin));
    }
  }

 private:
  std::vector<ValuePart> parts_;
};

}  // namespace

std::shared_ptr<const ValueSource> make_initial_values(const Init& init, uint64_t seed, const std::string& name) {
  if (init.zero_numel > 0) {
    Init rest = init;
    rest.zero_numel = 0;
    return std::make_shared<PartlyZero>(make_initial_values(rest, seed, name), init.zero_begin,
                                        init.zero_begin + init.zero_numel);
  }
  if (init.kind == Init::Kind::constant) return std::make_shared<ConstantValues>(static_cast<float>(init.value));
  const uint64_t key = kernels::stream_key(seed, name);
  if (init.kind == Init::Kind::uniform) return std::make_shared<UniformValues>(key, init.value);
  return std::make_shared<NormalValues>(key, init.value);
}

std::shared_ptr<const ValueSource> make_file_values(std::shared_ptr<const SafetensorsReader> file, std::string name) {
  return std::make_shared<FileValues>(std::move(file), std::move(name));
}

std::shared_ptr<const ValueSource> make_joined_values(std::vector<ValuePart> parts) {
  return std::make_shared<JoinedValues>(std::move(parts));
}

}  // namespace shoal::models
