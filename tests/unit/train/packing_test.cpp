#include "train/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/mix.h"

namespace shoal::train {
namespace {

std::vector<DocumentPart> pieces_of(const std::vector<int64_t>& places) {
  std::vector<DocumentPart> pieces;
  int64_t begin = 0;
  for (const int64_t count : places) {
    pieces.push_back({begin, count + 1, count});
    begin += count + 1;
  }
  return pieces;
}

std::vector<std::vector<int64_t>> places_of(const PackedRows& rows) {
  std::vector<std::vector<int64_t>> places;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    places.emplace_back();
    for (int64_t i = rows.firsts[static_cast<size_t>(row)]; i < rows.firsts[static_cast<size_t>(row) + 1]; ++i) {
      places.back().push_back(rows.pieces[static_cast<size_t>(i)].places());
    }
  }
  return places;
}

TEST(Pack, TakesTheRowWithTheLeastRoomThatHoldsThePiece) {
  using Row = std::vector<int64_t>;
  EXPECT_THAT(places_of(pack(pieces_of({2, 7, 5, 3, 6, 1}), 8, 1)),
              ::testing::UnorderedElementsAre(Row{7, 1}, Row{6, 2}, Row{5, 3}));
  EXPECT_EQ(places_of(pack(pieces_of({8, 8}), 8, 1)), (std::vector<std::vector<int64_t>>{{8}, {8}}));
  EXPECT_EQ(pack({}, 8, 1).rows(), 0);
}

TEST(Pack, LosesAndRepeatsNothingAndNoRowIsTooLong) {
  for (const int64_t sequence : {1, 2, 17, 64}) {
    for (const int64_t count : {1, 2, 100, 1001}) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < count; ++i) {
        places.push_back(1 +
                         static_cast<int64_t>(mixed(7, static_cast<uint64_t>(i)) % static_cast<uint64_t>(sequence)));
      }
      const PackedRows rows = pack(pieces_of(places), sequence, 5);
      std::set<int64_t> begins;
      for (const DocumentPart& piece : rows.pieces) begins.insert(piece.begin);
      EXPECT_EQ(begins.size(), static_cast<size_t>(count));
      int64_t full = 0;
      for (const std::vector<int64_t>& row : places_of(rows)) {
        int64_t sum = 0;
        for (const int64_t each : row) sum += each;
        EXPECT_LE(sum, sequence);
        EXPECT_GT(sum, 0);
        full += sum;
      }
      if (count > 1000) {
        EXPECT_GT(full, rows.rows() * sequence * 9 / 10) << sequence;
      }
    }
  }
}

TEST(Pack, TheKeyDecidesAmongPiecesOfOneLength) {
  const auto begins = [](uint64_t key) {
    std::vector<int64_t> found;
    for (const DocumentPart& piece : pack(pieces_of(std::vector<int64_t>(50, 3)), 6, key).pieces)
      found.push_back(piece.begin);
    return found;
  };
  EXPECT_EQ(begins(1), begins(1));
  EXPECT_NE(begins(1), begins(2));
}

// An evaluation takes the first rows of a split.
TEST(Pack, TheFirstRowsAreNotThoseOfTheLongestPieces) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 200; ++i) places.push_back(i < 100 ? 16 : 2);
  const std::vector<std::vector<int64_t>> rows = places_of(pack(pieces_of(places), 16, 3));
  ASSERT_EQ(rows.size(), 113u);
  const auto short_ones = std::count_if(rows.begin(), rows.begin() + 56, [](const auto& row) { return row[0] == 2; });
  EXPECT_GT(short_ones, 2);
  EXPECT_LT(short_ones, 11);
}

TEST(Pad, GivesEachPieceARow) {
  EXPECT_EQ(places_of(pad(pieces_of({2, 7, 5}))), (std::vector<std::vector<int64_t>>{{2}, {7}, {5}}));
}

}  // namespace
}  // namespace shoal::train
