// A few named texts that all ranks see: how they find each other before they can talk. The only thing that the
// transports need of a rendezvous; implemented over c10d's TCPStore, and in memory by tests.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "shoal/error.h"

namespace shoal {

// The place of errors that mean: the store is gone.
inline constexpr const char* kStorePlace = "comm store";

// The store is there and does not answer: its server hangs, or the network to it is cut.
struct StoreSilent : Error {
  explicit StoreSilent(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit;  // how long an answer was waited for
};

class KeyStore {
 public:
  virtual ~KeyStore() = default;
  // All throw shoal::Error at kStorePlace when the store is gone, and StoreSilent when it does not answer within the
  // store's limit; none waits for other ranks.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // The first rank to set the key wins; returns what it set. `value` is not empty.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  // `limit`: where that is shorter than the store's own.
  virtual std::optional<std::string> get(const std::string& key,
                                         std::chrono::milliseconds limit = std::chrono::milliseconds::max()) = 0;
};

using Deadline = std::chrono::steady_clock::time_point;

// Polls until the key is there; nullopt when the deadline passes. `look_around` runs between polls and may throw. A
// store that is silent is asked again until then, and throws at the deadline.
std::optional<std::string> wait_for_key(KeyStore& store, const std::string& key, Deadline deadline,
                                        const std::function<void()>& look_around = {});

}  // namespace shoal
