// Groups over Gloo on the loopback, with ranks as threads that meet in a store in memory.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "comm/host/gloo_carrier.h"
#include "comm/world/channel_group.h"
#include "unit/comm/rank_threads.h"

namespace shoal::testing {

inline GlooWorld::Options gloo_options(int rank, int world, Timeout timeout, std::shared_ptr<C10dStore> store) {
  GlooWorld::Options options;
  options.rank = rank;
  options.size = world;
  options.timeout = timeout;
  options.store = std::move(store);
  options.store_host = -1;
  options.address = "127.0.0.1";
  return options;
}

// `host_of`: the host of each rank; empty: all are on one.
inline Groups make_gloo_groups_on(const std::vector<int>& host_of, int world, Timeout timeout) {
  const auto store = make_hash_store();
  Groups groups(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      GlooWorld::Options options = gloo_options(rank, world, timeout, store);
      for (const int host : host_of) options.places.push_back({host, "host", ""});
      auto carrier = std::make_unique<GlooCarrier>(std::make_shared<GlooWorld>(options));
      groups[static_cast<size_t>(rank)] = std::make_unique<ChannelGroup>(std::move(carrier));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

inline Groups make_gloo_groups(int world, Timeout timeout) { return make_gloo_groups_on({}, world, timeout); }

}  // namespace shoal::testing
