// The numbers of a run's steps, column by column, as metrics.jsonl has them. Reads files of millions of lines in a
// few seconds. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal::report {

struct Columns {
  std::vector<int64_t> steps;                         // rising
  std::map<std::string, std::vector<double>> values;  // by column, one for each step; NaN: not there, or not finite
  std::vector<std::string> notes;                     // what was left out, and why

  // Empty where the file has no such column.
  const std::vector<double>& of(const std::string& name) const;
};

// Nothing of a file that is not there. Lines that cannot be read are left out and noted: a run that is being written,
// or was killed, ends in half of one. Of a step that stands twice the later line counts.
Columns read_columns(const std::string& path);

}  // namespace shoal::report
