// See key_store.h.
#include "comm/rendezvous/key_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace shoal {

namespace {

constexpr std::chrono::milliseconds kPollLimit(1000);  // so that who waits for a silent store still looks around

}  // namespace

StoreSilent::StoreSilent(std::chrono::milliseconds limit)
    : Error(kStorePlace, fmt::format("the rendezvous store did not answer within {} s",
                                     std::chrono::duration<double>(limit).count())),
      limit(limit) {}

std::optional<std::string> wait_for_key(KeyStore& store, const std::string& key, Deadline deadline,
                                        const std::function<void()>& look_around) {
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    bool silent = false;
    try {
      if (auto value = store.get(key, kPollLimit)) return value;
    } catch (const StoreSilent&) {
      silent = true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline && silent) throw StoreSilent(std::chrono::ceil<std::chrono::seconds>(now - begin));
    if (now >= deadline) return std::nullopt;
    if (look_around) look_around();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

}  // namespace shoal
