// How the ranks of a launch ended: which failed first, with what, and the exit code that follows. Pure.
#pragma once

#include <string>
#include <vector>

namespace shoal::launch {

struct RankEnd {
  int rank = 0;
  int exit_code = 0;            // when signal is 0
  int signal = 0;               // that ended it; 0: it ended by itself
  bool ended_by_us = false;     // after our own SIGTERM or SIGKILL
  bool unfinished = false;      // it stopped well before its work was done, and says so by its exit code
  std::string last_lines = {};  // of what it printed

  bool failed() const { return (exit_code != 0 && !unfinished) || signal != 0; }
};

struct LaunchOutcome {
  std::vector<RankEnd> ends;  // in the order in which the ranks ended
  int interrupted = 0;        // the signal that the launcher itself got; 0: none

  bool failed() const;  // some rank did
  // Index into ends of the rank that failed first by itself; -1: none.
  int first_failed() const;
  // The end that the exit code is of: the rank that failed first by itself, else one that we ended; nullptr: none
  // failed.
  const RankEnd* cause() const;
  // 0 when every rank ended with 0; the code of those that are unfinished, if none failed; else the code of the rank
  // that failed first (128 + signal when one ended it), or 128 + signal when the launch was interrupted.
  int exit_code() const;
};

// Ranks that were found ended at the same time, in the order in which they are taken to have ended: one that a signal
// ended comes first, since the others may have failed because of it.
std::vector<RankEnd> in_likely_order(std::vector<RankEnd> ends);

// "exit code 3", "signal 9 (Killed)".
std::string how_it_ended(const RankEnd& end);

// What the launcher says at the end, lines that close with the last lines of the rank that failed first. Empty when all
// went well.
std::string closing_text(const LaunchOutcome& outcome);

}  // namespace shoal::launch
