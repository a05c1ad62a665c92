// A communicator that another thread aborts; behind it a library of the test's own.
#include "comm/gpu/nccl_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "message_of.h"
#include "shoal/error.h"

namespace shoal {
namespace {

using ::testing::StartsWith;
using namespace std::chrono_literals;

std::atomic<int> aborted, destroyed, async_error;
int communicator;

class NcclLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    aborted = destroyed = async_error = 0;
    nccl.comm_abort = [](NcclComm) { return ++aborted, 0; };
    nccl.comm_destroy = [](NcclComm) { return ++destroyed, 0; };
    nccl.comm_get_async_error = [](NcclComm, int* result) { return *result = async_error, 0; };
    nccl.get_error_string = [](int) -> const char* { return "remote process exited"; };
  }
  static int connect(NcclComm* comm) {
    *comm = &communicator;
    return 0;
  }
  NcclLibrary nccl{};
};

TEST_F(NcclLinkTest, IsDestroyedWhenAllIsOverAndAbortedOtherwise) {
  {
    NcclLink link(nccl, connect, [] {});
    link.finish();
  }
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(aborted, 0);
  {
    NcclLink link(nccl, connect, [] {});
  }
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(aborted, 1);
}

TEST_F(NcclLinkTest, ThrowsOnceItIsAborted) {
  NcclLink link(nccl, connect, [] {});
  NcclComm given = nullptr;
  link.call("ncclAllGather", [&](NcclComm comm) { return given = comm, 0; });
  EXPECT_EQ(given, &communicator);
  link.abort();
  link.abort();
  EXPECT_EQ(aborted, 1);
  EXPECT_EQ(testing::message_of([&] { link.call("ncclAllGather", [](NcclComm) { return 0; }); }),
            "[comm nccl] ncclAllGather: its communicator was aborted.");
}

TEST_F(NcclLinkTest, ACallThatWaitsForAPeerIsEndedByTheAbort) {
  NcclLink link(nccl, connect, [] {});
  std::atomic<bool> inside = false;
  std::thread caller([&] {
    EXPECT_THAT(testing::message_of([&] {
                  link.call("ncclAllGather", [&](NcclComm) {
                    inside = true;
                    while (aborted == 0) std::this_thread::sleep_for(1ms);
                    return 6;
                  });
                }),
                StartsWith("[comm nccl] ncclAllGather failed: remote process exited"));
  });
  while (!inside) std::this_thread::sleep_for(1ms);
  link.abort();
  caller.join();
  EXPECT_EQ(aborted, 1);
}

TEST_F(NcclLinkTest, ConnectingEndsWhenTheWorldDoes) {
  std::atomic<bool> go_on = false;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(testing::message_of([&] {
              NcclLink link(
                  nccl,
                  [&](NcclComm* comm) {
                    while (!go_on) std::this_thread::sleep_for(1ms);
                    return connect(comm);
                  },
                  [] { throw Error("comm rank 0", "rank 1 died."); });
            }),
            "[comm rank 0] rank 1 died.");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  // The thread that was left behind ends what it still made.
  go_on = true;
  for (const auto deadline = begin + 10s; aborted == 0 && std::chrono::steady_clock::now() < deadline;) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(aborted, 1);
}

TEST_F(NcclLinkTest, WhatNcclFoundMeanwhileIsSaid) {
  NcclLink link(nccl, connect, [] {});
  EXPECT_EQ(link.trouble(), "");
  async_error = 7;  // in progress
  EXPECT_EQ(link.trouble(), "");
  async_error = 6;
  EXPECT_THAT(link.trouble(), StartsWith("NCCL failed meanwhile: remote process exited."));
  link.abort();
  EXPECT_EQ(link.trouble(), "");
}

}  // namespace
}  // namespace shoal
