// A run whose ranks are started again when some of them fail: between two starts, whether there is another one, from
// which checkpoint, and what is said of it. Called by the process that starts the ranks (apps/cli/train.cpp); it trains
// nothing itself. The rule is launch/restart_rule.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/outcome.h"
#include "launch/restart_rule.h"
#include "train/options.h"

namespace shoal::train {

// The hidden flag that tells ranks what to go on from, and its value where that is no checkpoint.
inline constexpr const char* kRestartedFrom = "--restarted-from";
inline constexpr const char* kBeginning = "beginning";

struct RestartOptions {
  std::string out;
  std::string first_checkpoint;      // that the first start goes on from; "": none
  std::vector<std::string> command;  // of the first start
  int restarts = 0;
};

class Restarts {
 public:
  // Before the first start: only checkpoints that are saved from now on are of this launch. A run may have been told to
  // begin further back than its latest.
  explicit Restarts(RestartOptions options);

  // After ranks have failed: the command to start them with again; or nothing, and stderr says why. What happens stands
  // in the run's events, too.
  std::optional<std::vector<std::string>> after(const launch::LaunchOutcome& outcome);

 private:
  std::string newest_checkpoint() const;

  RestartOptions options_;
  launch::RestartRule rule_;
  std::string latest_before_;
};

// For ranks that another launcher starts again with the words that they had (torchrun does): the checkpoint to go on
// from, or "". That is the newest in `out`; but a run that was told to go back to one of its own begins there again,
// since nobody can tell what it has saved from what was there before.
std::string restart_point(const TrainOptions& options);

}  // namespace shoal::train
