// Ranks that make their first connections tell each other through the store that they live: a transport that connects
// notices no death, and names no rank. GlooWorld holds one while it connects.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/key_store.h"

namespace shoal {

class RollCall {
 public:
  // Gives signs of life from a thread of its own, until it is destroyed. A rank that gives none for the time `silence`
  // is taken for dead.
  RollCall(KeyStore& store, int rank, int size, std::chrono::milliseconds silence);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  struct Verdict {
    std::vector<int> silent;  // ranks that died or hang
    std::optional<int> lost;  // nobody is silent, but this rank, the first of them, could not connect
    bool all_connected() const { return silent.empty() && !lost; }
  };
  // Waits until all are connected or it is known who is to blame. `connected` is asked all the while how connecting
  // ended here, if it has. `look_around` runs meanwhile and may throw; a store that is gone throws.
  Verdict wait(const std::function<std::optional<bool>()>& connected, const std::function<void()>& look_around);

 private:
  void beat();

  KeyStore& store_;
  const int rank_, size_;
  const std::chrono::milliseconds silence_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace shoal
