// How far long work is, said every few seconds. What is done sooner says nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace shoal {

class Headway {
 public:
  using Clock = std::chrono::steady_clock;

  // Lines read "initial weights: 12 of 68 units, 18 %, 10 s".
  struct Work {
    std::string what;    // "initial weights"
    std::string things;  // "units"
    int64_t total = 0;   // of them
    Clock::duration every = std::chrono::seconds(5);
    Clock::time_point begin = Clock::now();
  };
  Headway(Work work, std::function<void(const std::string&)> say);

  void reached(int64_t done) { reached(done, Clock::now()); }
  void reached(int64_t done, Clock::time_point now);

 private:
  Work work_;
  std::function<void(const std::string&)> say_;
  Clock::time_point last_;
  bool spoke_ = false;
};

}  // namespace shoal
