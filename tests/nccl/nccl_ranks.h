// Ranks as processes that share one GPU, over NCCL or through the hosts: what the tests of NCCL have in common.
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/group/full_group.h"
#include "cuda/torch_gpu.h"
#include "launch/shared_gpu.h"
#include "process/spawn.h"

namespace shoal::testing {

// Ranks with the environment that `shoal launch --share-gpu` gives, or, staged, without.
inline RanksOptions gpu_ranks(int world, const std::string& mode, const std::string& transport,
                              const std::map<std::string, std::string>& more = {}) {
  RanksOptions options;
  options.world = world;
  options.mode = mode;
  options.env = more;
  if (transport == "nccl") options.env["SHOAL_TRANSPORT"] = "nccl";
  options.limit = std::chrono::seconds(240);
  options.prefix = [world, transport](int rank) {
    std::vector<std::string> words = {"env"};
    if (transport != "nccl") return words;
    const auto variables =
        launch::shared_gpu_environment(rank, world, [](const char* name) { return std::getenv(name); });
    for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
    return words;
  };
  return options;
}

// The world of this rank's process, with the test's timeout.
inline std::unique_ptr<Group> join_world() {
  ProcessGroupOptions options;
  if (const char* limit = std::getenv("TEST_TIMEOUT_MS")) options.timeout = Timeout(std::stoll(limit));
  return make_process_group(options);
}

// What carries memory of this rank's GPU.
inline std::string gpu_transport(Group& world) {
  return full(world).device_channel("probe", gpu().index(), nullptr)->transport_name();
}

}  // namespace shoal::testing
