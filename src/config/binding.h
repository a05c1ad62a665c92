// The bridge between a JSON value and a field of Config, both ways: Binding b = bound_to([](auto& c) -> auto& {
// return c.zero.stage; }). The table checks a value before it is stored, so nothing here can be the user's mistake.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "shoal/config.h"

namespace shoal::config {

using json::Value;

struct Binding {
  std::function<void(Config&, const Value&)> store;
  std::function<Value(const Config&)> load;
};

void unpack(const Value& value, bool& field);
void unpack(const Value& value, int& field);
void unpack(const Value& value, int64_t& field);
void unpack(const Value& value, double& field);
void unpack(const Value& value, std::optional<DType>& field);

Value pack(bool field);
Value pack(int field);
Value pack(int64_t field);
Value pack(double field);
Value pack(const std::optional<DType>& field);

template <typename Access>
Binding bound_to(Access access) {
  return {[access](Config& config, const Value& value) { unpack(value, access(config)); },
          [access](const Config& config) { return pack(access(config)); }};
}

// An enum whose values are 0, 1, ... in the order of `words`.
template <typename Access>
Binding bound_to_choice(Access access, std::vector<std::string> words) {
  return {[access, words](Config& config, const Value& value) {
            using Enum = std::remove_reference_t<decltype(access(config))>;
            for (size_t i = 0; i < words.size(); ++i) {
              if (words[i] == value.as_text()) access(config) = static_cast<Enum>(i);
            }
          },
          [access, words](const Config& config) { return Value(words.at(static_cast<size_t>(access(config)))); }};
}

}  // namespace shoal::config
