#include "launch/shared_gpu.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "temp_folder.h"

namespace shoal::launch {
namespace {

using Variables = std::map<std::string, std::string>;

std::function<const char*(const char*)> environment(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(SharedGpu, EachRankIsAHostOfItsOwnOnTheFirstVisibleGpu) {
  const Variables nothing;
  EXPECT_EQ(shared_gpu_environment(1, 2, environment(nothing)), (Variables{{"NCCL_HOSTID", "shoal-rank-1"},
                                                                           {"NCCL_SOCKET_IFNAME", "lo"},
                                                                           {"NCCL_IB_DISABLE", "1"},
                                                                           {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                                                           {"NCCL_MAX_CTAS", "4"},
                                                                           {"NCCL_MAX_P2P_NCHANNELS", "4"},
                                                                           {"CUDA_VISIBLE_DEVICES", "0"}}));
  const Variables two_gpus = {{"CUDA_VISIBLE_DEVICES", "3,5"}};
  EXPECT_EQ(shared_gpu_environment(0, 2, environment(two_gpus)).at("CUDA_VISIBLE_DEVICES"), "3");
}

TEST(SharedGpu, WhatTheUserSetStaysButForTheIds) {
  const Variables given = {{"NCCL_HOSTID", "all"}, {"NCCL_SOCKET_IFNAME", "eth0"}, {"NCCL_MAX_CTAS", "8"}};
  const Variables got = shared_gpu_environment(3, 4, environment(given));
  EXPECT_EQ(got.at("NCCL_HOSTID"), "shoal-rank-3");
  EXPECT_EQ(got.count("NCCL_SOCKET_IFNAME"), 0u);
  EXPECT_EQ(got.count("NCCL_MAX_CTAS"), 0u);
  EXPECT_EQ(got.at("NCCL_IB_DISABLE"), "1");
}

TEST(SharedGpu, TheMoreRanksTheFewerBlocksEach) {
  const Variables nothing;
  EXPECT_EQ(shared_gpu_environment(0, 8, environment(nothing)).at("NCCL_MAX_CTAS"), "4");
  EXPECT_EQ(shared_gpu_environment(0, 16, environment(nothing)).at("NCCL_MAX_CTAS"), "2");
  EXPECT_EQ(shared_gpu_environment(0, 100, environment(nothing)).at("NCCL_MAX_CTAS"), "1");
}

TEST(SharedGpu, AllRanksTogetherHaveTheQueuesThatMpsHas) {
  const Variables nothing;
  const auto queues = [&](int ranks) {
    return std::stoi(shared_gpu_environment(0, ranks, environment(nothing)).at("CUDA_DEVICE_MAX_CONNECTIONS"));
  };
  EXPECT_EQ(queues(1), 32);
  EXPECT_EQ(queues(4), 16);
  EXPECT_EQ(queues(8), 8);
  EXPECT_EQ(queues(100), 4);
}

TEST(SharedGpu, MpsRunsWhereItsDaemonLives) {
  const testing::TempFolder folder;
  const auto path = [&](const char* name) { return folder / name; };
  EXPECT_FALSE(mps_runs(folder.path().c_str()));
  std::ofstream(path("control")) << "";
  EXPECT_TRUE(mps_runs(folder.path().c_str()));
  std::ofstream(path("nvidia-cuda-mps-control.pid")) << getpid() << "\n";
  EXPECT_TRUE(mps_runs(folder.path().c_str()));
  std::ofstream(path("nvidia-cuda-mps-control.pid")) << 999999999 << "\n";
  EXPECT_FALSE(mps_runs(folder.path().c_str()));
}

TEST(SharedGpu, SaysOnceThatMpsWouldHelp) {
  EXPECT_EQ(shared_gpu_notice(4, true), "");
  EXPECT_EQ(shared_gpu_notice(1, false), "");
  EXPECT_EQ(
      shared_gpu_notice(4, false),
      "shoal: 4 ranks share a GPU and take turns on it: MPS does not run. `nvidia-cuda-mps-control -d` starts it, "
      "and collectives get several times faster.\n");
}

}  // namespace
}  // namespace shoal::launch
