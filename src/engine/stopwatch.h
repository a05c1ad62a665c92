// How long parts of a step take.
#pragma once

#include <chrono>

namespace shoal {

// Seconds that a scope took, added up. Inside another one it counts nothing: a forward repeated in backward is
// backward.
class Stopwatch {
 public:
  Stopwatch(double& total, bool& running)
      : total_(total), running_(running), outermost_(!running), begin_(std::chrono::steady_clock::now()) {
    running_ = true;
  }
  ~Stopwatch() {
    if (!outermost_) return;
    total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    running_ = false;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  bool& running_;
  bool outermost_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace shoal
