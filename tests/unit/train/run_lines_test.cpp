#include "train/run_lines.h"

#include <gmock/gmock.h>

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LoadedCheckpoint checkpoint_at_10() {
  LoadedCheckpoint loaded;
  loaded.path = "run/checkpoints/step-00000010";
  loaded.step = 10;
  loaded.saved_world = 2;
  loaded.saved_optimizer = "AdamW";
  loaded.extra["threads"] = "4";
  return loaded;
}

constexpr const char* kWhere = "resumed    run/checkpoints/step-00000010 at step 10, 80 samples in, saved by 2 ranks";

TEST(ResumeLines, ARunThatIsAsItWasSaysWhereItGoesOn) {
  EXPECT_THAT(
      resume_lines(checkpoint_at_10(), {.ranks = 2, .threads = 4, .optimizer = "AdamW", .batch = 8, .samples = 80}),
      ElementsAre(kWhere));
}

TEST(ResumeLines, NameEverythingThatIsNotAsItWas) {
  LoadedCheckpoint loaded = checkpoint_at_10();
  loaded.unused_states = {StateKind::second_moment};
  EXPECT_THAT(resume_lines(loaded, {.ranks = 2, .threads = 1, .optimizer = "Lion", .batch = 16, .samples = 80}),
              ElementsAre(kWhere, "it was made with AdamW, this run updates with Lion: dropped second_moment",
                          "it took 8 samples a step, this run takes 16: give train_batch_size for the same batch",
                          "it was made with 4 threads a rank, not 1: the last bits of sums may differ"));
}

TEST(ResumeLines, ThreadsMatterAtEveryNumberOfRanks) {
  EXPECT_THAT(
      resume_lines(checkpoint_at_10(), {.ranks = 1, .threads = 1, .optimizer = "AdamW", .batch = 8, .samples = 80}),
      ElementsAre(kWhere, "it was made with 4 threads a rank, not 1: the last bits of sums may differ"));
}

TEST(GpuMemoryLines, SayWhatWasPlannedAndARingThatHasGrown) {
  MemoryReport memory;
  memory.held.weights = memory.planned.weights = size_t{3} << 30;
  EXPECT_THAT(gpu_memory_lines(memory, size_t{1} << 30, size_t{2} << 30),
              ElementsAre("GPU memory 4 GiB at most: 3 GiB of model states, as planned; activations 1 GiB, "
                          "planned 2 GiB"));
  memory.held.state_ring = size_t{1} << 30;
  memory.host_activations = size_t{5} << 20;
  EXPECT_THAT(gpu_memory_lines(memory, 0, 0),
              ElementsAre("GPU memory 4 GiB at most: 4 GiB of model states, of which a ring of 1 GiB that has "
                          "grown; activations 0 B, planned 0 B",
                          "activations on the host: 5 MiB"));
}

TEST(HostTrafficLines, AreThereWhereTheHostKeepsStates) {
  EXPECT_THAT(host_traffic_lines({}, 2, 0), IsEmpty());
  HostTraffic host;
  host.to_device_nbytes = size_t{4} << 20;
  host.to_host_nbytes = size_t{2} << 20;
  host.host_updated_numel = 3'000'000'000;
  host.ahead_numel = 2'000'000'000;
  host.taken_ahead_numel = 1'000'000'000;
  EXPECT_THAT(host_traffic_lines(host, 2, size_t{1} << 20),
              ElementsAre("states of the host: 2 MiB to the GPU and 1 MiB back a step, through 1 MiB of its "
                          "memory",
                          "the host updates 3 billion parameters a step",
                          "1 billion of them before the step was decided; 0.5 billion a step held"));
}

}  // namespace
}  // namespace shoal::train
