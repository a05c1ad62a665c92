// For whom each rank waits, told through the store, so that a rank that is late can be told from who holds it up (see
// blame.h). For transports whose ranks see nothing of each other but messages: GlooWorld holds one.
//   waits/<rank>   a number that grows at each look, then the ranks waited for: "17 3"
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/rendezvous/key_store.h"

namespace shoal {

class WaitReports {
 public:
  // What a rank waits for now: a number that tells the waits of one channel apart, and for whom.
  struct Wait {
    uint64_t number = 0;
    int for_rank = 0;
    bool operator==(const Wait&) const = default;
  };
  // Asks `waits` now and then, in a thread of its own, and writes down those that last. A store that fails ends it.
  WaitReports(KeyStore& store, int rank, std::function<std::vector<Wait>()> waits);
  ~WaitReports();
  WaitReports(const WaitReports&) = delete;
  WaitReports& operator=(const WaitReports&) = delete;

 private:
  void run();

  KeyStore& store_;
  const int rank_;
  const std::function<std::vector<Wait>()> waits_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread thread_;
};

// Whom to blame for the missing ranks, by what ranks have reported: a rank whose reports stand still hangs.
// `still`: for how long they must, many looks of a rank that waits, on a busy machine too.
std::vector<int> to_blame_by_reports(KeyStore& store, const std::vector<int>& missing,
                                     std::chrono::milliseconds still = std::chrono::milliseconds(3000));

}  // namespace shoal
