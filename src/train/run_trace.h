// The steps of a run that are traced (--trace-steps, --trace-ranks): which of those asked for it takes, and what it
// says of them. The trainer calls it around each step; the file is trace.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/options.h"
#include "train/trace.h"

namespace shoal::train {

class RunTrace {
 public:
  // For a rank of a run that takes steps `first` to `last`; none where first > last.
  RunTrace(const TrainOptions& options, int rank, int world, int64_t first, int64_t last);

  // Why there is none though one was asked for; "".
  const std::string& missing() const { return missing_; }
  // Whether a trace ends with this step, on this rank or another: all ranks read their steps together then.
  bool ends_with(int64_t step) const { return traced_ && traced_->last == step; }
  // Whether this rank has one under way or to come.
  bool writes() const { return trace_.has_value(); }
  int64_t first() const { return traced_ ? traced_->first : 0; }

  // As of Trace, on ranks that write one; "" elsewhere.
  void begin_step(int64_t step);
  std::string end_step(int64_t step);
  std::string end_with(int64_t step);

 private:
  std::optional<StepSpan> traced_;
  std::optional<Trace> trace_;  // of this rank
  std::string missing_;
};

}  // namespace shoal::train
