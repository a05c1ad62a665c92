// See room.h.
#include "engine/room.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "comm/gpu/gpus_of_ranks.h"
#include "comm/rendezvous/rendezvous.h"
#include "device/cuda.h"
#include "plan/headroom.h"

namespace shoal {

namespace {

std::string read_all(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of the line that begins so; 0 where none does.
size_t number_after(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) return std::strtoull(line.c_str() + begin.size(), nullptr, 10);
  }
  return 0;
}

size_t available_now() {
  return available_nbytes(read_all("/proc/meminfo"), read_all("/sys/fs/cgroup/memory.max"),
                          read_all("/sys/fs/cgroup/memory.current"), read_all("/sys/fs/cgroup/memory.stat"));
}

Room own_room(const Config& config, Group& world, at::Device device) {
  const auto device_budget = static_cast<size_t>(config.shoal.device_budget);
  const auto host_budget = static_cast<size_t>(config.shoal.host_budget);
  const size_t of_host = host_budget > 0 ? host_budget : usable_of_host(available_now());
  const size_t host = of_host / static_cast<size_t>(local_ranks(world.size()));
  if (!device.is_cuda()) return {device_budget > 0 ? device_budget : host, host};
  const int ranks_on_gpu = ranks_that_share(gpus_of_ranks(world, device.index()), world.rank());
  const size_t of_gpu = usable_of_gpu(cuda::facts_of(device.index()).free_nbytes);
  return {device_budget > 0 ? device_budget : of_gpu / static_cast<size_t>(ranks_on_gpu), host};
}

// All ranks place alike: by the least that one of them has.
Room least_room(const Room& own, Group& world) {
  const std::array<uint64_t, 2> numbers = {own.device, own.host};
  std::vector<std::array<uint64_t, 2>> all(static_cast<size_t>(world.size()));
  world
      .all_gather({.subject = {"say how much memory there is", "all ranks"},
                   .shard = numbers.data(),
                   .whole = all.data(),
                   .shard_nbytes = sizeof(numbers),
                   .keep = nullptr})
      .wait();
  Room least = own;
  for (const auto& [device, host] : all) {
    least.device = std::min<size_t>(least.device, device);
    least.host = std::min<size_t>(least.host, host);
  }
  return least;
}

}  // namespace

int local_ranks(int world) {
  return read_local_ranks([](const char* name) { return std::getenv(name); }, world);
}

size_t available_nbytes(const std::string& meminfo, const std::string& limit, const std::string& used,
                        const std::string& stat) {
  const size_t available = number_after(meminfo, "MemAvailable:") * 1024;
  const size_t most = std::strtoull(limit.c_str(), nullptr, 10);  // "max": no limit, and no number
  if (most == 0) return available;
  const size_t counted = std::strtoull(used.c_str(), nullptr, 10);
  const size_t taken = counted - std::min(counted, number_after(stat, "inactive_file "));  // files that were read
  return std::min(available, most > taken ? most - taken : 0);
}

size_t free_for_rank(int world) { return usable_of_host(available_now()) / static_cast<size_t>(local_ranks(world)); }

Room room_of_ranks(const Config& config, Group& world, at::Device device) {
  return least_room(own_room(config, world, device), world);
}

}  // namespace shoal
