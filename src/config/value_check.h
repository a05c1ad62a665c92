// Is this JSON value one that the key takes? Type, choices and range, by the key's row alone; what depends on other
// keys is the row's rule.
#pragma once

#include <string>

#include "config/key.h"

namespace shoal::config {

struct Checked {
  Value value;          // as the rest of the program sees it: a choice in the table's spelling
  std::string mistake;  // "" when the value is good
};

Checked check_value(const Key& key, const Value& value);

// "an integer of at least 1", "one of none, cpu, nvme": what the key takes, in words.
std::string describe_domain(const Key& key);

// The value as JSON on one line, cut when it is long.
std::string show(const Value& value);

}  // namespace shoal::config
