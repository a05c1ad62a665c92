// One run at a time in a run's folder: a lock (flock) on a file of it, which the kernel gives up when the run dies,
// however it dies. The file says who has it, for the message to the second one, and stays.
#pragma once

#include <string>

namespace shoal::train {

class RunLock {
 public:
  // Takes the folder for this process. Throws shoal::Error that names the living run that has it. On a file system
  // without locks nothing is taken.
  explicit RunLock(const std::string& out);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// Throws the same when a living run has the folder, and takes nothing: ranks that ask at one time do not meet each
// other.
void check_unlocked(const std::string& out);

}  // namespace shoal::train
