// A run's folder as the page needs it: the numbers of its steps, what happened, what each rank waited, what it was
// started with. Only files that are there; a run may be under way, cut short, or of an older Shoal.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "report/columns.h"

namespace shoal::report {

struct RunFolder {
  std::string path;  // as the user gave it
  std::string name;  // its last part
  Columns steps, evaluations;
  std::vector<json::Value> events, ranks;  // lines of events.jsonl and ranks.jsonl
  json::Value about, config;               // run.json and config.json; null where they are not there
  std::vector<std::string> traces;         // names of traces in it
  std::vector<std::string> notes;          // what was left out, and why
};

// Throws shoal::Error when the folder is not there, or holds nothing of a run.
RunFolder read_run_folder(const std::string& path);

}  // namespace shoal::report
