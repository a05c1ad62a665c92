// What a run left in its folder, read back for `shoal compare`: lines by their step, and what it was started with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace shoal::train {

using Lines = std::map<int64_t, json::Value>;  // by step

struct RunRecord {
  std::string path;  // as the user gave it
  Lines metrics;     // one line at least
  Lines evaluations, digests;
  // Of run.json and config.json, by dotted keys and as text, in the order of the files; none where they are not there.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> notes;  // lines that were left out, and why
};

// From a run's folder, or a file of metrics (with what lies beside it, if it is called metrics.jsonl). Lines that
// cannot be read are left out and noted: a run that was killed leaves half a line. Throws shoal::Error when there is
// nothing to read, or a step stands twice.
RunRecord read_run(const std::string& path);

}  // namespace shoal::train
