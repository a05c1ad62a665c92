// See shared_gpu.h.
#include "launch/shared_gpu.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace shoal::launch {

namespace {

constexpr int kMostBlocksAChannel = 32;  // of all ranks' kernels on one of their channels
constexpr int kMostQueues = 64;          // of all ranks

}  // namespace

std::map<std::string, std::string> shared_gpu_environment(int rank, int ranks,
                                                          const std::function<const char*(const char*)>& given) {
  const auto text = [&](const char* name) {
    const char* value = given(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string blocks = std::to_string(std::clamp(kMostBlocksAChannel / ranks, 1, 4));
  const std::string queues = std::to_string(std::clamp(kMostQueues / ranks, 4, 32));
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : std::map<const char*, std::string>{{"NCCL_SOCKET_IFNAME", "lo"},
                                                                      {"NCCL_IB_DISABLE", "1"},
                                                                      {"CUDA_DEVICE_MAX_CONNECTIONS", queues},
                                                                      {"NCCL_MAX_CTAS", blocks},
                                                                      {"NCCL_MAX_P2P_NCHANNELS", blocks}}) {
    if (text(name).empty()) variables[name] = value;
  }
  variables["NCCL_HOSTID"] = fmt::format("shoal-rank-{}", rank);
  const std::string visible = text("CUDA_VISIBLE_DEVICES");
  variables["CUDA_VISIBLE_DEVICES"] = visible.empty() ? "0" : visible.substr(0, visible.find(','));
  return variables;
}

bool mps_runs(const char* pipe_directory) {
  const bool given = pipe_directory != nullptr && pipe_directory[0] != 0;
  const std::filesystem::path folder = given ? pipe_directory : "/tmp/nvidia-mps";
  std::error_code error;
  if (!std::filesystem::exists(folder / "control", error)) return false;
  std::ifstream file(folder / "nvidia-cuda-mps-control.pid");
  pid_t pid = 0;
  if (!(file >> pid) || pid <= 0) return true;  // no more is known
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

std::string shared_gpu_notice(int ranks, bool mps) {
  if (mps || ranks < 2) return "";
  return fmt::format(
      "shoal: {} ranks share a GPU and take turns on it: MPS does not run. `nvidia-cuda-mps-control -d` starts it, and "
      "collectives get several times faster.\n",
      ranks);
}

}  // namespace shoal::launch
