// See run_trace.h.
#include "train/run_trace.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::train {

RunTrace::RunTrace(const TrainOptions& options, int rank, int world, int64_t first, int64_t last) {
  if (options.trace_steps.empty() || first > last) return;
  StepSpan asked = read_step_span(options.trace_steps);
  asked.first = std::max(asked.first, first);
  asked.last = std::min(asked.last, last);
  if (asked.first > asked.last) {
    missing_ = fmt::format("--trace-steps {}: this run takes steps {} to {}, so there is no trace", options.trace_steps,
                           first, last);
    return;
  }
  traced_ = asked;
  if (read_rank_list(options.trace_ranks, world).contains(rank)) {
    trace_.emplace(asked, options.out + "/" + trace_name(rank));
  }
}

void RunTrace::begin_step(int64_t step) {
  if (trace_) trace_->begin_step(step);
}

std::string RunTrace::end_step(int64_t step) { return trace_ ? trace_->end_step(step) : ""; }

std::string RunTrace::end_with(int64_t step) { return trace_ ? trace_->end_with(step) : ""; }

}  // namespace shoal::train
