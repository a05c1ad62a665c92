// Ends what ranks left behind. As a "subreaper" this process becomes the parent of every orphan below it, so whatever a
// rank started, however often it forked, turns up among our own children.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>

namespace shoal::launch {

class Descendants {
 public:
  Descendants();   // from now on orphans come to us; children that exist already are none of our business
  ~Descendants();  // as before
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;

  void spare(pid_t child) { spared_.insert(child); }
  // SIGTERM to all, SIGKILL to those that live on after the grace, until none is left. Returns how many there were.
  int end_all(std::chrono::milliseconds grace);

 private:
  std::set<pid_t> spared_;
  int was_subreaper_ = 0;
};

}  // namespace shoal::launch
