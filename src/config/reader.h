// From a JSON object to Settings, by the table: unknown keys, wrong values and refused keys become problems, keys
// without effect become notices, "auto" becomes a value.
#pragma once

#include <string>
#include <vector>

#include "config/problems.h"
#include "config/settings.h"

namespace shoal::config {

Settings read_settings(const Table& table, const Value& root, Problems& problems);

// Gives every "auto" its value, in the order of the table.
void resolve_autos(const Table& table, const ConfigContext& context, Settings& settings);

// The rules between keys, and the refusals, for every key that was written. After the batch triple is complete.
void check_rules(const Table& table, Settings& settings, Problems& problems);

// What to do about a word that is no key of the section: its home, the nearest key, or where the keys are listed.
std::string explain_unknown(const Table& table, const Section& section, const std::string& word);

// One line for each written key that has no effect here, and each section that is switched off.
std::vector<std::string> collect_notices(const Table& table, const Value& root, const Settings& settings);

}  // namespace shoal::config
