// What a config and the environment say of a process group, before the ranks meet.
#include <cstdlib>

#include "comm/rendezvous.h"
#include "shoal/config.h"
#include "shoal/group.h"

namespace shoal {

ProcessGroupOptions process_group_options(const Config& config) {
  ProcessGroupOptions options;
  switch (config.shoal.transport) {
    case TransportChoice::automatic: options.transport = Transport::automatic; break;
    case TransportChoice::shared_memory: options.transport = Transport::shared_memory; break;
    case TransportChoice::gloo: options.transport = Transport::gloo; break;
  }
  options.timeout = Timeout(static_cast<int64_t>(config.shoal.timeout_seconds * 1000));
  return options;
}

int world_size_of_environment() {
  return read_rendezvous([](const char* name) { return std::getenv(name); }).world;
}

}  // namespace shoal
