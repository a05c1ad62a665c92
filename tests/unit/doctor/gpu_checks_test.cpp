#include "doctor/gpu_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda.h"

namespace shoal::doctor {
namespace {

using ::testing::HasSubstr;

GpuMeasures healthy() { return {0, "H200", 9, 0, size_t{140} << 30, size_t{139} << 30, 4.3e12, 55e9, 54e9, ""}; }

TEST(GpuChecks, AFreeGpuOnFastWiresIsGood) {
  for (const Finding& finding : judge_gpu(healthy())) EXPECT_EQ(finding.health, Health::good) << finding.text;
}

TEST(GpuChecks, AGpuThatOthersUseIsPoor) {
  GpuMeasures gpu = healthy();
  gpu.free_nbytes = size_t{20} << 30;
  EXPECT_EQ(judge_gpu(gpu)[0].health, Health::poor);
  EXPECT_THAT(judge_gpu(gpu)[0].remedy, HasSubstr("nvidia-smi"));
}

TEST(GpuChecks, SlowWiresArePoor) {
  GpuMeasures gpu = healthy();
  gpu.from_device = 6e9;
  EXPECT_EQ(judge_gpu(gpu)[1].health, Health::poor);
  EXPECT_THAT(judge_gpu(gpu)[1].remedy, HasSubstr("offload will show"));
}

TEST(GpuChecks, KernelsThatDoNotRunAreMissingWithTheWayToBuildThem) {
  GpuMeasures gpu = healthy();
  gpu.major = 8;
  gpu.minor = 6;
  gpu.kernel_trouble = "no kernel image is available for execution on the device";
  const Finding finding = judge_gpu(gpu)[1];
  EXPECT_EQ(finding.health, Health::missing);
  EXPECT_THAT(finding.text, HasSubstr("no kernel image"));
  EXPECT_THAT(finding.remedy, HasSubstr("-DSHOAL_CUDA_ARCHITECTURES=86"));
}

TEST(GpuChecks, ADriverOlderThanTheBuildIsMissingAndANewerOneIsGood) {
  EXPECT_EQ(judge_driver({13000, 13000}).health, Health::good);
  EXPECT_EQ(judge_driver({13020, 13000}).text, "runs CUDA 13.2, this build is of CUDA 13.0");
  EXPECT_EQ(judge_driver({13000, 13020}).health, Health::good) << "a major version's drivers run all of its minor ones";
  EXPECT_EQ(judge_driver({12080, 13000}).health, Health::missing);
  EXPECT_THAT(judge_driver({12080, 13000}).remedy, HasSubstr("a driver for CUDA 13.0"));
  EXPECT_THAT(judge_driver({0, 13000}).remedy, HasSubstr("Install NVIDIA's driver"));
  EXPECT_THAT(judge_driver({0, 0}).text, HasSubstr("this build has no CUDA"));
}

TEST(GpuChecks, WithoutAGpuItSaysWhy) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "there is a GPU";
  const std::vector<Finding> findings = check_gpus();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].subject, "driver");
  EXPECT_THAT(findings[1].text, HasSubstr(cuda::why_none()));
}

}  // namespace
}  // namespace shoal::doctor
