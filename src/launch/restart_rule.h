// Whether ranks that failed are started again, by what is known of the failures so far. Called by who starts them; what
// they go on from is not decided here. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/outcome.h"

namespace shoal::launch {

// The command's exit code when an audit found a rank that computes wrong (train/audit.h).
inline constexpr int kAuditExit = 4;

class RestartRule {
 public:
  // One failure, again and again at the same step, is taken for one that no start can mend.
  static constexpr int kSameFailures = 3;

  explicit RestartRule(int restarts) : restarts_(restarts) {}

  // After a failure of ranks that had come to `step`: "" to start again, else why not, in a sentence. A start that is
  // allowed counts as used.
  std::string refusal(const RankEnd& failure, int64_t step);
  int used() const { return used_; }
  int restarts() const { return restarts_; }

 private:
  struct Failure {
    int exit_code = 0, signal = 0;
    int64_t step = 0;
    bool operator==(const Failure&) const = default;
  };

  int restarts_ = 0;
  int used_ = 0;
  std::optional<Failure> last_;
  int in_a_row_ = 0;
};

}  // namespace shoal::launch
