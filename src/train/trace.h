// A trace of some steps, for chrome://tracing and Perfetto: what ran on the CPU and on the GPU, what was waited for,
// and for how much of the time the GPU computed.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace at {
struct RecordFunction;
}

namespace shoal::train {

// Steps first to last, both counted.
struct StepSpan {
  int64_t first = 0, last = 0;
};
// "3" or "3-5". Throws shoal::Error where it is neither.
StepSpan read_step_span(const std::string& text);

// "all", "0" or "0,2-3", of so many ranks. Throws shoal::Error where it is none of these, or names a rank that is not.
std::set<int> read_rank_list(const std::string& text, int world);
// Of a rank's file in the run's folder: trace.json of rank 0, trace-rank-1.json.
std::string trace_name(int rank);

// A range of the host's time with a name, in traces of that time. Costs next to nothing where there is none.
class TraceRange {
 public:
  explicit TraceRange(const std::string& name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  std::unique_ptr<at::RecordFunction> range_;
};

struct Interval {
  uint64_t begin = 0, end = 0;
};
// How much of the time the intervals cover, those that overlap counted once.
uint64_t covered(std::vector<Interval> intervals);

class Trace {
 public:
  // Writes to that path when the last of the steps is over.
  Trace(StepSpan steps, std::string path) : steps_(steps), path_(std::move(path)) {}
  // One that is not over is dropped.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Around each step, which are counted from 1. What a GPU was given for a step is done when it ends.
  void begin_step(int64_t step);
  // What to tell the user, after the last one; "" before and later. Throws shoal::Error when the file cannot be
  // written.
  std::string end_step(int64_t step);
  // The run ends with this step: so does the trace, if it has begun.
  std::string end_with(int64_t step);

 private:
  StepSpan steps_;
  std::string path_;
  bool running_ = false;
};

}  // namespace shoal::train
