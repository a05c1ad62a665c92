// What a config and the environment say of a process group, before the ranks meet.
#include <cstdlib>

#include "comm/rendezvous/rendezvous.h"
#include "shoal/config.h"
#include "shoal/group.h"

namespace shoal {

ProcessGroupOptions process_group_options(const Config& config) {
  ProcessGroupOptions options;
  options.transport = config.shoal.transport;
  options.timeout = Timeout(static_cast<int64_t>(config.shoal.timeout_seconds * 1000));
  return options;
}

int world_size_of_environment() {
  return read_rendezvous([](const char* name) { return std::getenv(name); }).world;
}

}  // namespace shoal
