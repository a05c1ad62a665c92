#include "plan/exchange_pieces.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(ExchangePieces, AloneOrWithoutBytesNothingIsReceived) {
  EXPECT_EQ(cut_exchange(0, 4, 0).nbytes(), 0u);
  EXPECT_EQ(cut_exchange(4096, 1, 0).nbytes(), 0u);
}

TEST(ExchangePieces, WhatFitsTravelsAtOnceThroughOneBuffer) {
  const ExchangePieces pieces = cut_exchange(1001, 3, 0);
  EXPECT_EQ(pieces.count, 1u);
  EXPECT_EQ(pieces.piece_nbytes, 1024u);
  EXPECT_EQ(pieces.nbytes(), 2u * 1024);
}

TEST(ExchangePieces, TheRestGoesThroughTwoBuffersOfTheOtherRanksPieces) {
  const ExchangePieces pieces = cut_exchange(10000, 4, 4 * 1024);
  EXPECT_EQ(pieces.piece_nbytes, 1024u);
  EXPECT_EQ(pieces.count, 10u);
  EXPECT_EQ(pieces.buffer_nbytes, 3u * 1024);
  EXPECT_EQ(pieces.nbytes(), 2u * 3 * 1024);
}

TEST(ExchangePieces, PiecesAreNeverEmptyNorTakeMoreThanTheBound) {
  for (const size_t strip : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1} << 20, size_t{1} << 32}) {
    for (const int ranks : {2, 3, 64, 1024}) {
      for (const size_t most : {size_t{0}, size_t{1}, size_t{100}, size_t{1} << 16, size_t{1} << 40}) {
        const ExchangePieces pieces = cut_exchange(strip, ranks, most);
        EXPECT_GE(pieces.piece_nbytes, 64u);
        EXPECT_EQ(pieces.piece_nbytes % 64, 0u);
        EXPECT_GE(pieces.count * pieces.piece_nbytes, strip);
        EXPECT_LT((pieces.count - 1) * pieces.piece_nbytes, strip);
        EXPECT_LE(pieces.nbytes(), 2 * kMostExchangedNbytes);
      }
    }
  }
}

}  // namespace
}  // namespace shoal
