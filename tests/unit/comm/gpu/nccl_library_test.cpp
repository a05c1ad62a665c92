#include "comm/gpu/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "message_of.h"
#include "shoal/error.h"

namespace shoal {
namespace {

// The wheel of a CPU-only torch brings none.
const NcclLibrary* library(std::string& why) {
  try {
    return &NcclLibrary::get();
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

TEST(NcclLibrary, IsFoundBesideTorchAndNeedsNoGpuToBeAsked) {
  std::string why;
  const NcclLibrary* nccl = library(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  int version = 0;
  nccl->check(nccl->get_version(&version), "ncclGetVersion");
  EXPECT_GE(version, 21900);
}

TEST(NcclLibrary, AFailureSaysWhichCallAndWhatNcclSays) {
  std::string why;
  const NcclLibrary* nccl = library(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  constexpr int kInvalidArgument = 4;
  EXPECT_THAT(testing::message_of([&] { nccl->check(kInvalidArgument, "ncclAllGather"); }),
              ::testing::HasSubstr("[comm nccl] ncclAllGather failed: invalid argument"));
}

}  // namespace
}  // namespace shoal
