// Carries numbered chunks between host memory and a queue's, in the background: a thread for each way gives its wire
// few copies at a time, so that other small copies of the program never wait behind many large ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/wires.h"

namespace shoal {

class Ferry {
 public:
  Ferry(std::unique_ptr<Wires> wires, int chunks);
  // Drops what has not begun and waits for what has.
  ~Ferry();
  Ferry(const Ferry&) = delete;
  Ferry& operator=(const Ferry&) = delete;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t nbytes = 0;
  };
  // Before the first copy, in the background. The memory outlives this object.
  void pin(std::byte* host, size_t nbytes);
  // Once chunk `after` is back from where this one comes to lie, as far as take_back() was called for it.
  void bring(int chunk, const Copy& copy, int after);
  // What the queue is given later finds the chunk's bytes where bring() puts them. Waits until the wire has the copy.
  void begin_use(int chunk);
  // The queue has no more work on the chunk; its bytes go back after what it has.
  void take_back(int chunk, const Copy& copy);
  // Waits until every copy is through.
  void settle();

  struct Counters {
    uint64_t brought_nbytes = 0, taken_nbytes = 0;
    double waited_seconds = 0;  // in begin_use and settle
  };
  Counters counters() const;
  // Why the memory could not be pinned; "" where it was, or will be.
  std::string unpinned_because() const;

 private:
  struct Order {
    int chunk = 0;
    Copy copy;
    int after = -1;           // in: the chunk that was there before
    int64_t after_count = 0;  // in: this many orders out are given to their wire first
    bool pins = false;
  };
  struct Lane {
    std::deque<Order> orders;
    int64_t ordered = 0;  // so far
    int64_t begun = 0;    // given to the wire
    int last = -1;        // chunk of the last order
    std::thread thread;
  };

  void serve(Lane& lane);
  // Holds the lock when it is called and when it returns; false: no more orders.
  bool next_order(Lane& lane, std::unique_lock<std::mutex>& lock, Order& order);
  void fail();
  void check() const;

  std::unique_ptr<Wires> wires_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Lane in_, out_;
  std::vector<int64_t> brings_, returns_;  // of each chunk: its last order's number
  std::string unpinned_because_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  Counters counters_;
};

}  // namespace shoal
