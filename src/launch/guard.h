// A small process that outlives the launcher by a moment: when the launcher dies without a word (SIGKILL, out of
// memory), it kills the process groups of the ranks, so that what the ranks started dies with them.
#pragma once

#include <sys/types.h>

namespace shoal::launch {

class Guard {
 public:
  Guard();   // forks
  ~Guard();  // what is still watched is killed; the guard ends
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);
  pid_t pid() const { return pid_; }

 private:
  void tell(pid_t word) const;

  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace shoal::launch
