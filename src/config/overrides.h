// "path=value" settings from the command line, laid over a parsed config before it is checked.
#pragma once

#include <string>
#include <vector>

#include "config/problems.h"
#include "config/table.h"

namespace shoal::config {

// A value is JSON where it reads as JSON, else a text: optimizer.type=AdamW needs no quotes. Replaces what the file
// says under any spelling of the key. What is wrong with an override is a problem that names it.
void apply_overrides(const Table& table, const std::vector<std::string>& overrides, Value& root, Problems& problems);

}  // namespace shoal::config
