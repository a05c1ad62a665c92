#include "engine/out_of_memory.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

OutOfMemory event() {
  OutOfMemory event;
  event.unit = "model.layers.3";
  event.phase = "backward";
  event.said =
      "CUDA out of memory. Tried to allocate 2.00 GiB. If reserved but unallocated memory is large try setting "
      "PYTORCH_ALLOC_CONF=expandable_segments:True\nException raised from malloc";
  event.memory.held.weights = size_t{2} << 30;
  event.memory.held.states = size_t{10} << 30;
  event.device_nbytes = size_t{24} << 30;
  event.micro_batch = 8;
  event.stage = 2;
  event.world = 4;
  return event;
}

TEST(OutOfMemory, NamesTheUnitThePlanAndWhatWouldFit) {
  const std::string message = explain(event()).what();
  EXPECT_THAT(message, AllOf(HasSubstr("[GPU memory, backward of unit model.layers.3]"),
                             HasSubstr("Tried to allocate 2.00 GiB. Of the GPU's 24 GiB, 12 GiB hold model states"),
                             HasSubstr("weights 2 GiB"), HasSubstr("a micro-batch below 8"), HasSubstr("--recompute"),
                             HasSubstr("a zero_optimization.stage above 2"), HasSubstr("more ranks")));
  EXPECT_THAT(message, Not(HasSubstr("Exception raised")));
  EXPECT_THAT(message, Not(HasSubstr("PYTORCH_ALLOC_CONF")));
}

TEST(OutOfMemory, OffersNothingThatIsDoneAlready) {
  OutOfMemory alone = event();
  alone.world = 1;
  alone.micro_batch = 1;
  const std::string message = explain(alone).what();
  EXPECT_THAT(message, Not(HasSubstr("micro-batch below")));
  EXPECT_THAT(message, Not(HasSubstr("stage above")));
}

TEST(OutOfMemory, WhileTheEngineIsBuiltNamesThePlanAndTheSettingsThatWouldFit) {
  NoRoom event;
  event.said = "30 GiB of GPU memory for optimizer states cannot be had: [cuda] cudaMalloc failed: out of memory";
  event.planned.weights = size_t{6} << 30;
  event.planned.states = size_t{30} << 30;
  event.free_nbytes = size_t{20} << 30;
  event.device_nbytes = size_t{24} << 30;
  event.settings = {"offload_optimizer, ratio 0.60"};
  EXPECT_THAT(explain(event).what(),
              AllOf(HasSubstr("[GPU memory, building the engine] 30 GiB of GPU memory for optimizer states"),
                    HasSubstr("Model states take 36 GiB by plan (weights 6 GiB,"),
                    HasSubstr("20 GiB of the GPU's 24 GiB are free"),
                    HasSubstr("not counted: offload_optimizer, ratio 0.60; more GPUs with ZeRO stage 3")));
}

// Of 4 Mi parameters in bf16 in two groups: 8 MiB of weights, as much of gradients, 40 MiB of states.
TEST(OutOfMemory, WhileTheEngineIsBuiltTheSettingsAreThoseThatFitWhatIsFree) {
  const auto half = [] { return at::zeros({2 << 20}, at::kBFloat16).requires_grad_(); };
  const std::vector<Unit> units = {{.name = "u", .params = {{"a", half()}, {"b", half(), /*group=*/1}}}};
  Config config;
  config.precision = Precision::bf16;
  config.zero.stage = 3;
  cuda::DeviceFacts gpu;
  gpu.total_nbytes = size_t{64} << 20;
  gpu.free_nbytes = size_t{40} << 20;
  const NoRoom event = no_room({units, config, /*groups=*/2, /*world=*/1}, "56 MiB cannot be had.", gpu);
  EXPECT_EQ(event.planned.model_states(), size_t{56} << 20);
  ASSERT_FALSE(event.settings.empty());
  EXPECT_THAT(event.settings[0], HasSubstr("offload_optimizer"));
  EXPECT_THAT(explain(event).what(), HasSubstr("40 MiB of the GPU's 64 MiB are free"));
}

}  // namespace
}  // namespace shoal
