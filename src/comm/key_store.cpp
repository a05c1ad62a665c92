// See key_store.h.
#include "comm/key_store.h"

#include <algorithm>
#include <thread>

namespace shoal {

std::optional<std::string> wait_for_key(KeyStore& store, const std::string& key, Deadline deadline,
                                        const std::function<void()>& look_around) {
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    if (auto value = store.get(key)) return value;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    if (look_around) look_around();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

}  // namespace shoal
