#include "models/ops/attention_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace shoal::models::ops {

namespace {

constexpr size_t kMiB = size_t{1} << 20;

}  // namespace

TEST(AttentionPieces, AreNoneForOtherLengthsThanTilesOfAMiddleRange) {
  for (const int64_t time : {0, 1, 128, 384, 511, 513, 576, 2000, 4224, 8192}) {
    EXPECT_TRUE(piece_of({4, 8, 2, time, 64}).is_none()) << time;
    EXPECT_EQ(piece_workspace_nbytes({4, 8, 2, time, 64}), 0u);
    EXPECT_EQ(backward_in_flight_nbytes({4, 8, 2, time, 64}, 512, 0), 0u);
  }
  for (const int64_t time : {512, 640, 2048, 4096}) EXPECT_FALSE(piece_of({4, 8, 2, time, 64}).is_none()) << time;
  EXPECT_TRUE(piece_of({0, 8, 2, 512, 64}).is_none());
  EXPECT_TRUE(piece_of({1, 64, 1, 4096, 64}).is_none());  // the heads of one of k and v are too many
}

// Measured on an H200 with cuDNN 9.19: 1154 MiB for 16 rows at once, 2306 MiB for 8.
TEST(AttentionPieces, CountTheWorkspaceThatWasMeasured) {
  const AttentionShape first = {16, 32, 8, 1024, 64}, second = {8, 32, 8, 2048, 128};
  EXPECT_EQ(piece_workspace_nbytes(first) * 16, 1154 * kMiB * static_cast<size_t>(piece_of(first).batch));
  EXPECT_EQ(piece_workspace_nbytes(second) * 8, 2306 * kMiB * static_cast<size_t>(piece_of(second).batch));
}

TEST(AttentionPieces, StayWithinTheirBoundsAndAreAsEvenAsTheyCan) {
  for (const int64_t batch : {1, 2, 3, 7, 16}) {
    for (const int64_t kv_heads : {1, 3, 8, 32}) {
      for (const int64_t group : {1, 4}) {
        for (const int64_t time : {512, 1152, 2048, 4096}) {
          for (const int64_t dim : {8, 64, 128}) {
            const AttentionShape shape = {batch, kv_heads * group, kv_heads, time, dim};
            const AttentionPiece piece = piece_of(shape);
            ASSERT_FALSE(piece.is_none());
            EXPECT_TRUE(piece.kv_heads == kv_heads || piece.batch == 1);
            EXPECT_LE(piece.batch, batch);
            EXPECT_LE(piece.kv_heads, kv_heads);
            const size_t q = static_cast<size_t>(2 * batch * shape.heads * time * dim);
            EXPECT_LE(piece_workspace_nbytes(shape), std::clamp(12 * q, 320 * kMiB, 1024 * kMiB));
          }
        }
      }
    }
  }
  // A benchmark's shape, in four pieces of two rows; eight rows of three at most, as 3, 3 and 2; a row in two pieces.
  EXPECT_EQ(piece_of({8, 32, 8, 2048, 64}).batch, 2);
  EXPECT_EQ(piece_of({8, 32, 8, 2048, 128}).batch, 3);
  EXPECT_EQ(piece_of({2, 32, 8, 4096, 64}).kv_heads, 2);
}

TEST(AttentionPieces, InFlightIsWhatGoesBeyondWhatWasGivenBack) {
  const AttentionShape shape = {2, 4, 4, 512, 64};
  const size_t rows = 1024, workspace = piece_workspace_nbytes(shape);
  EXPECT_EQ(backward_in_flight_nbytes(shape, 256, 0), workspace + rows * 2 * (2 * 256 + 4 * 256));
  EXPECT_EQ(backward_in_flight_nbytes(shape, 256, 512), workspace + rows * 2 * 4 * 256);
  EXPECT_EQ(backward_in_flight_nbytes(shape, 256, 1 << 20), 0u);
}

}  // namespace shoal::models::ops
