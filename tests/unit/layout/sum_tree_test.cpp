// The tree of sums against its definition, written as one recursion over runs.
#include "layout/sum_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace shoal {
namespace {

// The node that covers [begin, begin + 2^level) of these runs, as the note defines it; what is past the end is absent.
double node_of(const std::vector<double>& runs, int64_t begin, int level) {
  if (level == 0) return runs[static_cast<size_t>(begin)];
  const int64_t middle = begin + (int64_t{1} << (level - 1));
  const double left = node_of(runs, begin, level - 1);
  return middle < static_cast<int64_t>(runs.size()) ? left + node_of(runs, middle, level - 1) : left;
}
double root_of(const std::vector<double>& runs) {
  int level = 0;
  while ((size_t{1} << level) < runs.size()) ++level;
  return runs.empty() ? 0 : node_of(runs, 0, level);
}

// Sums of squares of many magnitudes, so that another order of additions shows.
std::vector<double> random_runs(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> runs(static_cast<size_t>(count));
  for (double& run : runs) {
    run = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 40) - 70);
  }
  return runs;
}

std::vector<double> pieces_of(const std::vector<double>& runs, int64_t begin, int64_t end) {
  std::vector<double> pieces(static_cast<size_t>(piece_count(begin, end)));
  double* out = pieces.data();
  while (begin < end) {
    const int64_t block_end = std::min(end, (begin / kBlockRuns + 1) * kBlockRuns);
    out += write_pieces(runs.data() + begin, begin, block_end, out);
    begin = block_end;
  }
  EXPECT_EQ(out, pieces.data() + pieces.size());
  return pieces;
}

std::vector<double> tops_of(const std::vector<double>& runs, int64_t begin, int64_t end) {
  std::vector<double> tops(static_cast<size_t>(top_count(begin, end)) + 1, -7);
  sum_pieces(pieces_of(runs, begin, end).data(), begin, end, tops.data());
  EXPECT_EQ(tops.back(), -7) << "more tops than were counted";
  tops.pop_back();
  return tops;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

TEST(SumTree, PiecesAndTopsAreTheLargestAlignedNodesOfARange) {
  for (int64_t begin = 0; begin < 70; ++begin) {
    for (int64_t end = begin; end < 200; ++end) {
      for (const int most : {kBlockLevel, kMostLevel}) {
        int64_t at = begin, count = 0;
        for (; at < end; ++count) {
          const int level = node_level(at, end, most);
          const int64_t runs = int64_t{1} << level;
          ASSERT_TRUE(level <= most && at % runs == 0 && at + runs <= end);
          ASSERT_TRUE(level == most || at % (2 * runs) != 0 || at + 2 * runs > end) << "a larger one fits";
          at += runs;
        }
        ASSERT_EQ(at, end);
        ASSERT_EQ(count, most == kMostLevel ? top_count(begin, end) : piece_count(begin, end));
      }
    }
  }
  EXPECT_EQ(piece_count(0, 3 * kBlockRuns), 3);
  EXPECT_EQ(piece_count(31, 65), 3);
  EXPECT_EQ(top_count(0, 96), 2);
  EXPECT_LE(top_count(1, (int64_t{1} << 40) - 1), kMostTops) << "of any flat there is";
}

TEST(SumTree, EveryTopIsTheNodeOfTheTree) {
  const std::vector<double> runs = random_runs(300, 1);
  for (int64_t begin = 0; begin < 300; begin += 7) {
    for (int64_t end = begin + 1; end <= 300; end += 11) {
      int64_t at = begin;
      for (const double top : tops_of(runs, begin, end)) {
        const int level = node_level(at, end, kMostLevel);
        ASSERT_EQ(bits(top), bits(node_of(runs, at, level))) << at << " in " << begin << " to " << end;
        at += int64_t{1} << level;
      }
    }
  }
}

TEST(SumTree, NoCutAndNoPaddingShowsInTheRoot) {
  int orders_differ = 0;
  for (const int64_t count : {1, 2, 3, 5, 24, 31, 32, 33, 63, 64, 100, 129, 500, 1000, 4097}) {
    const std::vector<double> whole = random_runs(count, static_cast<uint64_t>(count));
    const double expected = root_of(whole);
    double in_order = 0;
    for (const double run : whole) in_order += run;
    orders_differ += in_order != expected;
    for (const int parts : {1, 2, 3, 4, 6, 8}) {
      std::vector<double> runs = whole;
      const int64_t part_runs = (count + parts - 1) / parts;
      runs.resize(static_cast<size_t>(part_runs * parts), 0.0);  // the padding
      ASSERT_EQ(bits(root_of(runs)), bits(expected));
      // Ranks stand in another order than their parts, and another flat is before this one.
      FlatTops flat{part_runs, 3, 0};
      for (int part = 0; part < parts; ++part) {
        flat.places = std::max(flat.places, top_count(part * part_runs, (part + 1) * part_runs));
      }
      const int64_t rank_places = flat.offset + flat.places + 2;
      std::vector<double> all(static_cast<size_t>(parts * rank_places), std::nan(""));
      std::vector<int> rank_of_part;
      for (int part = 0; part < parts; ++part) {
        rank_of_part.push_back(parts - 1 - part);
        const std::vector<double> tops = tops_of(runs, part * part_runs, (part + 1) * part_runs);
        std::copy(tops.begin(), tops.end(), all.begin() + rank_of_part.back() * rank_places + flat.offset);
      }
      ASSERT_EQ(bits(flat_root(all.data(), rank_places, rank_of_part.data(), parts, flat)), bits(expected))
          << count << " runs in " << parts << " parts";
    }
  }
  EXPECT_GT(orders_differ, 5) << "the values do not tell one order from another";
}

TEST(SumTree, OfNothingIsZero) {
  const int rank_of_part[] = {0, 1};
  EXPECT_EQ(flat_root(nullptr, 0, rank_of_part, 2, {}), 0);
  EXPECT_EQ(piece_count(5, 5), 0);
  EXPECT_EQ(top_count(5, 5), 0);
  EXPECT_EQ(runs_of(0), 0);
}

}  // namespace
}  // namespace shoal
