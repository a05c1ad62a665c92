// States of a GPU's rank in host memory and on disk: the bits of the resident run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/torch_gpu.h"
#include "temp_folder.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

TEST(GpuOffload, EveryTierGivesTheBitsOfTheResidentRun) {
  SHOAL_NEEDS_GPU();
  const TempFolder folder;
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32}) {
    RunOptions options;
    options.device = gpu();
    options.precision = precision;
    options.steps = 10;
    const std::vector<RunResult> resident = train_on_threads(2, options);
    for (const int stage : {1, 3}) {
      for (const Tier tier : {Tier::host, Tier::disk}) {
        for (const double ratio : {0.3, 1.0}) {
          options.stage = stage;
          options.offload = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = ratio};
          EXPECT_TRUE(train_on_threads(2, options)[1] == resident[1])
              << fmt::format("{} stage {} tier {} ratio {}", name_of(precision), stage, name_of(tier), ratio);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
