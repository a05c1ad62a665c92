#include "plan/state_chunks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace shoal {
namespace {

// Units of 1024 and 2048 elements in bf16, and one that is frozen between them.
ModelLayout two_units(int world) {
  return lay_out({{"a", {{"w", {1024}, DType::bf16}}, {}},
                  {"frozen", {{"w", {512}, DType::bf16, false}}, {}},
                  {"b", {{"w", {2048}, DType::bf16}}, {}}},
                 {.mesh = world, .persistence_threshold = 0});
}

std::string text_of(const std::vector<StateChunk>& chunks) {
  std::string text;
  for (const StateChunk& chunk : chunks) {
    text += fmt::format("unit {} {}..{} {} {} bytes\n", chunk.unit, chunk.begin, chunk.end, name_of(chunk.tier),
                        chunk.nbytes);
  }
  return text;
}

TEST(StateChunks, OnTheDeviceAFlatIsOneChunk) {
  EXPECT_EQ(text_of(cut_states(two_units(2), {.stage = 1, .rank = 1})),
            "unit 0 512..1024 device 5120 bytes\n"
            "unit 2 1024..2048 device 10240 bytes\n");
  EXPECT_EQ(text_of(cut_states(two_units(2), {.stage = 0, .rank = 1, .moments = 1})),
            "unit 0 0..1024 device 6144 bytes\n"
            "unit 2 0..2048 device 12288 bytes\n");
}

TEST(StateChunks, OffloadedStatesAreCut) {
  EXPECT_EQ(text_of(cut_states(two_units(1), {.stage = 3, .tier = Tier::disk, .chunk_numel = 900})),
            "unit 0 0..960 disk 9600 bytes\n"
            "unit 0 960..1024 disk 640 bytes\n"
            "unit 2 0..960 disk 9600 bytes\n"
            "unit 2 960..1920 disk 9600 bytes\n"
            "unit 2 1920..2048 disk 1280 bytes\n");
}

TEST(StateChunks, ARatioKeepsTheFrontOnTheDevice) {
  EXPECT_EQ(text_of(cut_states(two_units(1), {.stage = 3, .tier = Tier::host, .ratio = 0.5})),
            "unit 0 0..1024 device 10240 bytes\n"
            "unit 2 0..512 device 5120 bytes\n"
            "unit 2 512..2048 host 15360 bytes\n");
  const auto none = cut_states(two_units(1), {.stage = 3, .tier = Tier::host, .ratio = 0});
  EXPECT_TRUE(
      std::all_of(none.begin(), none.end(), [](const StateChunk& chunk) { return chunk.tier == Tier::device; }));
}

TEST(StateChunks, TheHostHasWhatTheDiskDoesNotTake) {
  EXPECT_EQ(text_of(cut_states(
                two_units(1), {.stage = 3, .tier = Tier::disk, .ratio = 0.75, .disk_ratio = 0.25, .chunk_numel = 640})),
            "unit 0 0..768 device 7680 bytes\n"
            "unit 0 768..1024 host 2560 bytes\n"
            "unit 2 0..640 host 6400 bytes\n"
            "unit 2 640..1280 host 6400 bytes\n"
            "unit 2 1280..1920 disk 6400 bytes\n"
            "unit 2 1920..2048 disk 1280 bytes\n");
  const auto most = cut_states(two_units(1), {.stage = 3, .tier = Tier::disk, .ratio = 0.5, .disk_ratio = 0.9});
  EXPECT_TRUE(std::none_of(most.begin(), most.end(), [](const StateChunk& chunk) { return chunk.tier == Tier::host; }));
  const auto none = cut_states(two_units(1), {.stage = 3, .tier = Tier::disk, .ratio = 0.5, .disk_ratio = 0});
  EXPECT_TRUE(std::none_of(none.begin(), none.end(), [](const StateChunk& chunk) { return chunk.tier == Tier::disk; }));
}

TEST(StateChunks, PartsOfAChunkFollowEachOther) {
  const StateChunk chunk = cut_states(two_units(1), {.stage = 0}).front();
  EXPECT_EQ(chunk.first, 0u);
  EXPECT_EQ(chunk.second, 4096u);
  EXPECT_EQ(chunk.master, 8192u);
  EXPECT_EQ(chunk.nbytes, 8192u + 2048);
}

}  // namespace
}  // namespace shoal
