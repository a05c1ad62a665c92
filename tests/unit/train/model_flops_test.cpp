#include "train/model_flops.h"

#include <gtest/gtest.h>

#include "forecast/decoder_shape.h"

namespace shoal::train {
namespace {

TEST(PeakFlops, AreByTheNameAndThePrecision) {
  EXPECT_EQ(peak_flops_of("NVIDIA H100 80GB HBM3", Precision::bf16, false), 989e12);
  EXPECT_EQ(peak_flops_of("NVIDIA H100 PCIe", Precision::fp16, false), 756e12);
  EXPECT_EQ(peak_flops_of("NVIDIA A100-SXM4-80GB", Precision::fp32, false), 19.5e12);
  EXPECT_EQ(peak_flops_of("NVIDIA A100-SXM4-80GB", Precision::fp32, true), 156e12);
  EXPECT_EQ(peak_flops_of("NVIDIA GB200", Precision::bf16, false), 2500e12);
  EXPECT_EQ(peak_flops_of("NVIDIA GH200 480GB", Precision::bf16, false), 989e12);
  for (const char* other : {"", "cpu", "NVIDIA RTX A4000", "Some GPU", "H1000"}) {
    EXPECT_EQ(peak_flops_of(other, Precision::bf16, true), 0) << other;
  }
}

TEST(Mfu, IsOfAllRanksAndOnlyWhereThePeakIsKnown) {
  EXPECT_DOUBLE_EQ(mfu_per_token({.per_token = 6e9, .peak = 1e15, .device = "x"}, 2), 3e-6);
  EXPECT_EQ(mfu_per_token({.per_token = 6e9, .peak = 0, .device = "cpu"}, 2), 0);
}

TEST(ModelFlops, CountWhatAPlanCounts) {
  TrainOptions options;
  options.model = "llama-tiny";
  options.data = "synthetic:tokens=50000";
  options.steps = 1;
  options.sequence = 64;
  const PreparedRun run = prepare_run(options, 1);
  const ModelFlops flops = flops_of(options, run, at::kCPU);
  EXPECT_EQ(flops.per_token, forecast::model_flops_a_token(run.model->info().shape, 64))
      << "as shoal plan --time counts";
  EXPECT_EQ(flops.peak, 0);
  EXPECT_EQ(flops.device, "cpu");
  options.peak_tflops = 2;
  EXPECT_EQ(flops_of(options, run, at::kCPU).peak, 2e12);
}

}  // namespace
}  // namespace shoal::train
