// The mistakes of one config, collected so that the user sees all of them at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace shoal::config {

class Problems {
 public:
  // `overrides`: the texts behind the marks that override_mark gave.
  explicit Problems(std::vector<std::string> overrides = {}) : overrides_(std::move(overrides)) {}

  void add(const json::Mark& mark, std::string_view path, std::string message);
  bool empty() const { return found_.empty(); }

  // Throws one shoal::Error that lists them in the order of the file, overrides last. Does nothing when there are none.
  void throw_if_any(std::string_view origin) const;

  // "line 4", the override, or "" for what stands nowhere.
  std::string place_of(const json::Mark& mark) const;

 private:
  struct Problem {
    json::Mark mark;
    std::string path, message;
  };
  std::vector<std::string> overrides_;
  std::vector<Problem> found_;
};

// The mark of a value that came from the index-th override instead of the text.
inline json::Mark override_mark(size_t index) { return {-1 - static_cast<int>(index), 0}; }

}  // namespace shoal::config
