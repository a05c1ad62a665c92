#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda.h"
#include "message_of.h"
#include "shoal/device.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(OpenDevice, CpuIsTheCpu) { EXPECT_EQ(open_device("cpu"), at::Device(at::kCPU)); }

TEST(OpenDevice, RefusesWhatIsNoDevice) {
  EXPECT_THAT(message_of([] { open_device("gpu"); }), HasSubstr("[device gpu] is not known. Use auto, cpu"));
  EXPECT_THAT(message_of([] { open_device("cuda:x"); }), HasSubstr("Write cuda:0"));
  EXPECT_THAT(message_of([] { open_device("cuda:-1"); }), HasSubstr("Write cuda:0"));
}

TEST(OpenDevice, WithoutAGpuAutoIsTheCpuAndCudaSaysWhy) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(open_device("auto"), at::Device(at::kCPU));
  EXPECT_THAT(message_of([] { open_device("cuda"); }), HasSubstr("there is no GPU to use: " + cuda::why_none()));
}

}  // namespace
}  // namespace shoal
