// What `shoal plan --time` and `--search` print: text for people, JSON for programs. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "forecast/ask.h"
#include "forecast/search.h"

namespace shoal::forecast {

struct TimeReport {
  std::string subject;  // "llama-7b: 6,738,415,616 parameters"
  Cluster cluster;
  int world = 1;
  int stage = 3;
  Sharding sharding;
  Workload work;
  std::string recompute;  // in words
  Forecast forecast;
};

std::string time_text(const TimeReport& report);
json::Value time_json(const TimeReport& report);

struct SearchReport {
  std::string subject;
  Cluster cluster;
  int world = 1;
  Workload work;
  SearchAnswer answer;
  size_t shown = 10;
};

std::string search_text(const SearchReport& report);
json::Value search_json(const SearchReport& report);

}  // namespace shoal::forecast
