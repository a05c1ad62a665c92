// See trace_waits.h.
#include "train/trace_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <map>
#include <ostream>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace shoal::train {

namespace {

constexpr int64_t kProcess = 1'000'000'000;  // larger than any id of a process, and no GPU's number
constexpr size_t kHeadNbytes = size_t{1} << 20;
constexpr std::string_view kBaseKey = "\"baseTimeNanoseconds\": ", kEventsKey = "\"traceEvents\": [";

std::string quoted(const std::string& text) { return json::write(text); }

// A trace counts in microseconds.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string name_event(const char* key, int64_t lane, const std::string& name) {
  return fmt::format(R"(  {{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"name": {}}}}})", key, kProcess,
                     lane, quoted(name));
}

struct Lane {
  int64_t number = 0;
  int64_t until_ns = 0;
};

}  // namespace

std::string events_of_waits(const std::vector<Wait>& waits, int64_t base_ns) {
  std::vector<std::string> events = {
      name_event("process_name", 0, "waits"),
      fmt::format(R"(  {{"ph": "M", "name": "process_sort_index", "pid": {}, "tid": 0, "args": {{"sort_index": -1}}}})",
                  kProcess)};
  std::map<std::string, std::vector<Lane>> lanes;
  int64_t lane_count = 0;
  for (const Wait& wait : waits) {
    SHOAL_CHECK_GE(wait.begin_ns, base_ns);
    std::vector<Lane>& own = lanes[wait.what];
    auto lane = std::find_if(own.begin(), own.end(), [&](const Lane& each) { return each.until_ns <= wait.begin_ns; });
    if (lane == own.end()) {
      lane = own.insert(own.end(), {++lane_count});
      events.push_back(name_event("thread_name", lane->number, wait.what));
    }
    lane->until_ns = wait.end_ns;
    events.push_back(fmt::format(
        R"(  {{"ph": "X", "cat": "wait", "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}}})", quoted(wait.what),
        kProcess, lane->number, microseconds(wait.begin_ns - base_ns), microseconds(wait.end_ns - wait.begin_ns)));
  }
  return join(events, ",\n");
}

void copy_with_waits(std::istream& trace, const std::vector<Wait>& waits, std::ostream& out) {
  std::string head(kHeadNbytes, '\0');
  trace.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(trace.gcount()));
  const size_t base_at = head.find(kBaseKey), events_at = head.find(kEventsKey);
  SHOAL_CHECK(base_at < events_at && events_at != std::string::npos, "a trace of another form: {}",
              head.substr(0, 500));
  int64_t base_ns = 0;
  std::from_chars(head.data() + base_at + kBaseKey.size(), head.data() + head.size(), base_ns);

  const size_t first = events_at + kEventsKey.size();
  const size_t next = head.find_first_not_of(" \n", first);
  const bool is_only = next == std::string::npos || head[next] == ']';
  out << std::string_view(head).substr(0, first) << "\n"
      << events_of_waits(waits, base_ns) << (is_only ? "" : ",") << std::string_view(head).substr(first);
  if (trace.peek() != std::istream::traits_type::eof()) out << trace.rdbuf();
}

}  // namespace shoal::train
