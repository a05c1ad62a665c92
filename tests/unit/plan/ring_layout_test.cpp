#include "plan/ring_layout.h"

#include <gtest/gtest.h>

namespace shoal {

TEST(RingLayout, TakesWhatIsAllowedButRoomForOneChunkAndNoMoreThanAll) {
  const std::vector<size_t> chunks = {1000, 256, 4096};
  EXPECT_EQ(ring_nbytes(chunks, 0), 4096u);
  EXPECT_EQ(ring_nbytes(chunks, 4700), 4608u);  // whole granules
  EXPECT_EQ(ring_nbytes(chunks, 1 << 20), 1024u + 256u + 4096u);
  EXPECT_EQ(ring_nbytes({}, 1 << 20), 0u);
  EXPECT_EQ(ring_nbytes(std::vector<size_t>(80, 1024), kRingBegins), 10u * 1024);
  EXPECT_EQ(ring_nbytes(std::vector<size_t>(80, size_t{1} << 30), kRingBegins), size_t{1} << 30);
}

TEST(RingLayout, GrowsIntoHalfOfWhatIsLeftToTheRank) {
  EXPECT_EQ(grown_ring_nbytes(10, 400, 1000, 1, 0), 210u);
  EXPECT_EQ(grown_ring_nbytes(10, 400, 1000, 4, 0), 60u);
  EXPECT_EQ(grown_ring_nbytes(10, 400, 1000, 1, 650), 60u) << "600 of 650 are in use";
  EXPECT_EQ(grown_ring_nbytes(10, 400, 1000, 1, 500), 10u);
  EXPECT_EQ(grown_ring_nbytes(10, 400, 1000, 2, 500), 110u) << "each of the two has 300";
}

TEST(RingLayout, WithRoomForAllEveryChunkWaitsForItselfAlone) {
  const std::vector<size_t> chunks = {1000, 256, 4096};
  const std::vector<RingPlace> expected = {{0, 0}, {1024, 1}, {1280, 2}};
  EXPECT_EQ(lay_ring(chunks, ring_nbytes(chunks, 1 << 20)), expected);
}

TEST(RingLayout, ChunksGoRoundAndWaitForTheLastOneInTheirPlace) {
  // Two fit at a time; the fifth comes to lie over the third and the fourth of the round before.
  const std::vector<size_t> chunks = {512, 512, 512, 512, 512};
  const std::vector<RingPlace> expected = {{0, 4}, {512, 3}, {0, 0}, {512, 1}, {0, 2}};
  EXPECT_EQ(lay_ring(chunks, 1024), expected);
}

TEST(RingLayout, AChunkThatDoesNotFitBeforeTheEndBeginsAtTheFront) {
  const std::vector<size_t> chunks = {768, 512, 256, 256};
  // 768 | 512 wraps over it | 256 behind | 256 behind that
  const std::vector<RingPlace> expected = {{0, 2}, {0, 0}, {512, 0}, {768, 3}};
  EXPECT_EQ(lay_ring(chunks, 1024), expected);
}

// Walks many rounds and checks that no chunk is put where bytes lie that are still to be carried off.
TEST(RingLayout, NothingIsEverOverwritten) {
  std::vector<size_t> chunks;
  for (size_t i = 0; i < 37; ++i) chunks.push_back(1 + (i * 7919) % 3000);
  for (const size_t wanted : {size_t{0}, size_t{5000}, size_t{20000}, size_t{1} << 20}) {
    const size_t ring = ring_nbytes(chunks, wanted);
    const std::vector<RingPlace> places = lay_ring(chunks, ring);
    const auto count = static_cast<int64_t>(chunks.size());
    for (int64_t at = count; at < 3 * count; ++at) {
      const auto chunk = static_cast<size_t>(at % count);
      EXPECT_LE(places[chunk].offset + chunks[chunk], ring);
      const int64_t back = (static_cast<int64_t>(chunk) - places[chunk].after + count - 1) % count + 1;
      for (int64_t later = at - back + 1; later < at; ++later) {
        const auto other = static_cast<size_t>(later % count);
        EXPECT_TRUE(places[other].offset + chunks[other] <= places[chunk].offset ||
                    places[chunk].offset + chunks[chunk] <= places[other].offset);
      }
    }
  }
}

}  // namespace shoal
