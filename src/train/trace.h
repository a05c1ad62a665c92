// A trace of some steps, for chrome://tracing and Perfetto: what ran on the CPU and on the GPU, what was waited for,
// and for how much of the time the GPU computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::train {

// Steps first to last, both counted.
struct StepSpan {
  int64_t first = 0, last = 0;
};
// "3" or "3-5". Throws shoal::Error where it is neither.
StepSpan read_step_span(const std::string& text);

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
