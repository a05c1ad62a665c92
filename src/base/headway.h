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

  // Lines read "initial weights: 12 of 68 units, 18 %, 10 s"; `what` is the text before the colon.
  Headway(std::string what, std::string things, int64_t total, std::function<void(const std::string&)> say,
          Clock::duration every = std::chrono::seconds(5));

  void reached(int64_t done) { reached(done, Clock::now()); }
  void reached(int64_t done, Clock::time_point now);

 private:
  std::string what_, things_;
  int64_t total_;
  std::function<void(const std::string&)> say_;
  Clock::duration every_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  bool spoke_ = false;
};

}  // namespace shoal
