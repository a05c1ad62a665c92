// See value_sources.h.
#include "models/value_sources.h"

#include <algorithm>

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

class FileValues final : public ValueSource {
 public:
  FileValues(std::shared_ptr<const SafetensorsReader> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}
  void read(int64_t begin, int64_t numel, float* values) const override { file_->read(name_, begin, numel, values); }

 private:
  std::shared_ptr<const SafetensorsReader> file_;  // shared by all parameters that it holds
  std::string name_;
};

}  // namespace

std::shared_ptr<const ValueSource> make_initial_values(const Init& init, uint64_t seed, const std::string& name) {
  if (init.kind == Init::Kind::constant) return std::make_shared<ConstantValues>(static_cast<float>(init.value));
  return std::make_shared<NormalValues>(kernels::stream_key(seed, name), init.value);
}

std::shared_ptr<const ValueSource> make_file_values(std::shared_ptr<const SafetensorsReader> file, std::string name) {
  return std::make_shared<FileValues>(std::move(file), std::move(name));
}

}  // namespace shoal::models
