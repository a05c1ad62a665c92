// What a run writes into its folder beside the numbers of its steps, for `shoal report`: events.jsonl, a line whenever
// something happens, and ranks.jsonl, a line now and then with what each rank waited. The form: docs/formats/run.md.
// Rank 0 writes it. A disk that is full costs lines of these and never the run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "shoal/meters_view.h"
#include "train/metrics_file.h"
#include "train/run_facts.h"
#include "train/step_exchange.h"

namespace shoal::train {

using EventFacts = std::vector<std::pair<std::string, json::Value>>;

// A line of events.jsonl without its end, with the time that it is.
std::string event_line(const std::string& event, int64_t step, const EventFacts& more = {});
// Members for the event "memory": planned and held, by kind and tier, in bytes.
EventFacts memory_members(const MemoryReport& memory);

// Members for the events "start" and "resume".
EventFacts start_members(const Config& config, const RunRanks& ranks, const std::string& checkpoint);

class RunEvents {
 public:
  static constexpr int64_t kRanksEvery = 10;  // steps between lines of ranks.jsonl

  // Writes nothing: other ranks, and a run without a folder.
  RunEvents() = default;
  // Into that folder. Lines of ranks for steps after `step` are dropped: these will be taken again. Events stay.
  RunEvents(const std::string& folder, int64_t step);

  void add(const std::string& event, int64_t step, const EventFacts& more = {});
  // After each step, with what ranks have spent so far.
  void add_ranks(int64_t step, const std::vector<RankTimes>& ranks);
  // Writes what is left of them.
  void flush_ranks();

 private:
  void append(MetricsFile& file, const std::string& line);

  std::unique_ptr<MetricsFile> events_, ranks_;
  std::vector<RankTimes> before_, now_;  // of the line before, and of the last step
  int64_t step_ = 0;
  int64_t steps_ = 0;  // since the line before
};

}  // namespace shoal::train
