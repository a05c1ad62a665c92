// A line of metrics.jsonl, read fast: one object of numbers, lists of numbers, booleans, nulls and texts, no objects
// inside. Runs have millions of such lines, which json::parse would take minutes for. Pure.
#pragma once

#include <functional>
#include <string_view>

namespace shoal::report {

// Null and the words that Python writes (NaN, Infinity) are NaN; true is 1; a text is left out. Of a list the largest
// number is seen, NaN of an empty one.
using SeeNumber = std::function<void(std::string_view key, double value)>;
// False where the line is no such object, cut off for instance; some numbers may have been seen then.
bool read_flat_line(std::string_view line, const SeeNumber& see);

}  // namespace shoal::report
