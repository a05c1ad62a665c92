// Reading a Hugging Face config.json key by key. A key that is null counts as absent. Errors name the file, the key and
// the value. What the keys mean is each family's affair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace shoal::models {

class HfConfig {
 public:
  // `origin` is for messages: the path of config.json, or a built-in name.
  HfConfig(json::Value root, std::string origin);

  const json::Value& root() const { return root_; }
  const std::string& origin() const { return origin_; }

  // nullptr when absent or null.
  const json::Value* find(std::string_view key) const;
  // Without a default the key must be there.
  int64_t count(std::string_view key, std::optional<int64_t> otherwise = {}) const;  // 1 or more
  int64_t whole(std::string_view key, int64_t otherwise) const;                      // 0 or more
  // A count of layers, each of which is a unit with a list of its own: a slip of the pen would fill the memory.
  static constexpr int64_t kMostLayers = 1 << 16;
  int64_t layers(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  double probability(std::string_view key) const;  // 0 when absent; below 1
  bool flag(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  // An object below this one, for reading in the same way; empty when absent.
  HfConfig section(std::string_view key) const;

  // Throws: the key has a value, which would change what the model computes, and which is not carried out here.
  [[noreturn]] void refuse(std::string_view key, std::string_view instead) const;

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view what) const;

  json::Value root_;
  std::string origin_;
  std::string path_;  // the keys above, with a dot behind: "rope_parameters."
};

// What every export does to config.json: `architecture` stands in it, and the dtype is that of the weights beside it.
json::Value export_hf_config(const json::Value& root, const std::string& architecture);

}  // namespace shoal::models
